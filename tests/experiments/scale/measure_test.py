# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs, and the measurement of text in small."""

import numpy as np
import pytest

from experiments.scale import measure, rates as rates_lib
from retrieval.text import line_ranges


def test_the_fit_finds_the_costs_of_features():
  features = [[1, 2, 0], [1, 5, 3], [1, 1, 8], [1, 9, 9]]
  seconds = np.asarray(features) @ [0.5, 0.0, 2.0]
  found, error = rates_lib.fit(features, seconds)
  assert found == pytest.approx([0.5, 0.0, 2.0], abs=1e-9)
  assert error < 1e-9


def test_the_fit_has_no_negative_cost_and_tells_its_error():
  found, error = rates_lib.fit([[1, 1], [1, 2], [1, 3]], [3, 2, 1])
  assert min(found) >= 0 and found[1] == 0
  scaled = found[0] / np.asarray([3, 2, 1])
  assert error == pytest.approx(np.abs(scaled - 1).max())


def test_rates_of_text_are_those_of_the_corpus(tmp_path, monkeypatch):
  corpus = measure.corpus_lib.open_corpus(kind='vital', max_documents=300)
  monkeypatch.setattr(measure.corpus_lib, 'open_corpus', _opened(corpus))
  monkeypatch.setattr(measure, 'VOCAB_SIZE', 1000)
  monkeypatch.setattr(measure, '_EMBEDDED', 8)
  monkeypatch.setattr(measure, 'cpu_sec', lambda do, rounds=3: (do(), 2.0)[1])
  found = {name: value for name, value, *_ in measure.measure_text(tmp_path)}
  size = (tmp_path / 'vital.jsonl').stat().st_size
  assert found['read'] == pytest.approx(size / 2)
  texts = sum(
    len(measure.tokens_lib.document_text(x, True).encode()) for x in corpus
  )
  assert found['tokenize'] * 2 == pytest.approx(texts, rel=0.001)
  assert 2 < found['bytes_per_token'] < 4
  assert 3 < found['bytes_per_wordpiece'] < 6
  assert set(found) == {
    'read',
    'tokenize',
    'bytes_per_token',
    'chunk',
    'feed',
    'bytes_per_wordpiece',
    'embed',
  }


def _opened(corpus):
  real = measure.corpus_lib.open_corpus

  def opened(path='', **fields):
    return corpus if fields.get('kind') == 'vital' else real(path, **fields)

  return opened


def test_counting_and_codes_are_timed(tmp_path, monkeypatch):
  monkeypatch.setattr(measure, '_COUNTED', 100)
  monkeypatch.setattr(line_ranges, 'RANGE_BYTES', 20_000)
  monkeypatch.setattr(measure, '_SCANN', ((600, 8, 1, 1),))
  monkeypatch.setattr(measure, '_QUERIES', 4)
  monkeypatch.setattr(measure, 'cpu_sec', lambda do, rounds=3: (do(), 2.0)[1])
  (counted,) = measure.measure_counting(tmp_path)
  assert counted[:2] == ('count', 0.02)
  assert (tmp_path / 'lines.jsonl').read_text().count('\n') == 100
  (found,) = measure.measure_codes(tmp_path)
  assert found[:2] == ('int8', 2 * 4 * 600 * 8 / 2)


def test_a_partition_is_timed_in_two_parts(tmp_path, monkeypatch):
  cases = (600, 8, 10), (600, 8, 20), (300, 16, 10), (300, 16, 20)
  monkeypatch.setattr(measure, '_PARTITIONS', cases)
  monkeypatch.setattr(measure, '_PLACED', (500, 8, 10))
  monkeypatch.setattr(measure.partition, 'NUM_NEAREST', 2)
  ran = []

  def timed(do):
    ran.append(do())
    rows = sum(map(len, ran[-1]))
    shards, dimension = [(10, 8), (20, 8), (10, 16), (20, 16), (0, 0)][
      len(ran) - 1
    ]
    return rows * (shards * dimension * 3e-9 + shards * 5e-9) or 2.0

  monkeypatch.setattr(measure, 'cpu_sec', timed)
  found = {x[0]: x for x in measure.measure_partition(tmp_path)}
  assert found['partition_product'][1] == pytest.approx(3e-9)
  assert found['partition_choice'][1] == pytest.approx(5e-9)
  assert found['place'][1] == 2.0 / 500
  assert '% needed more than 2 shards' in found['place'][3]
  assert ran[0][0].shape == (600, 2) and sum(map(len, ran[-1])) == 500


def test_the_disk_is_timed_by_the_clock(tmp_path, monkeypatch):
  monkeypatch.setattr(measure, '_FILE_BYTES', 1 << 20)
  found = {name: value for name, value, *_ in measure.measure_disk(tmp_path)}
  assert set(found) == {'disk_write', 'disk_read'}
  assert min(found.values()) > 0
