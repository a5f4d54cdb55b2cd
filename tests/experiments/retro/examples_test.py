# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Last words and summaries of a tiny model."""

import dataclasses
import gzip
import json
import math
import types

import pytest

from experiments.retro import (
  evaluate as retro_evaluate,
  examples as retro_examples,
)
from retro_jax.trained import language_model
from tests.experiments.retro import tiny_config, tiny_retro


@pytest.fixture
def runs(root, monkeypatch):
  return tiny_retro.load_from(root, monkeypatch)


CONFIG = tiny_config.of()


def _run(workdir, task, path, **settings):
  evaluate = tiny_retro.evaluate_one(
    evaluators=(task,),
    baseline_workdir='baseline',
    **{'examples.path': str(path), 'batch_size': 2} | settings,
  )
  retro_evaluate.evaluate(CONFIG, str(workdir), evaluate)
  return json.loads((workdir / f'{task}.json').read_text())['rows']


def _examples(tmp_path, rows, name='examples.jsonl'):
  path = tmp_path / name
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  path.write_bytes(
    gzip.compress(text.encode()) if name.endswith('gz') else text.encode()
  )
  return path


def test_texts_are_split_before_the_last_word():
  assert retro_examples.split('he said\n\nto  Harlin \n') == (
    'he said\n\nto',
    'Harlin',
  )
  with pytest.raises(ValueError, match="'one' has no word before"):
    retro_examples.split('one')


def test_a_last_word_is_right_where_it_is_the_likeliest(
  runs, tmp_path, monkeypatch
):
  asked = []

  def loglikelihood(model, contexts, ends, *, num_neighbors, **others):
    asked.append((contexts, ends, num_neighbors))
    return [types.SimpleNamespace(is_greedy=x == ' moon') for x in ends]

  monkeypatch.setattr(
    language_model.LanguageModel, 'loglikelihood', loglikelihood
  )
  texts = [{'text': x} for x in ('the river moon', 'queen apple', 'x  moon ')]
  rows = _run(tmp_path / 'retro', 'lambada', _examples(tmp_path, texts))
  assert [row['name'] for row in rows] == [
    'RETRO, k=1',
    'RETRO off',
    'baseline',
  ]
  run = str(tmp_path / 'retro')
  assert [row['workdir'] for row in rows] == [run, run, 'baseline']
  pairs = ['the river', 'queen', 'x'], [' moon', ' apple', ' moon']
  assert asked == [(*pairs, 1), (*pairs, 0), (*pairs, 0)]
  for row in rows:
    assert row['accuracy'] == pytest.approx(2 / 3)
    assert row['low'] is row['high'] is None and row['examples'] == 3


def test_summaries_are_scored_alone(runs, tmp_path):
  rows = [
    {'article': 'river queen tensor', 'summary': 'river moon'},
    {'text': 'gardens walked seven ' * 9, 'summary': '\u65e5\u672c x'},
  ]
  path = _examples(tmp_path, rows, 'examples.jsonl.gz')
  for name, one in runs.items():
    long = dataclasses.replace(one.config, sequence_chunks=8)
    runs[name] = dataclasses.replace(one, config=long)
  found = _run(tmp_path / 'retro', 'summary', path)
  assert [row['name'] for row in found] == [
    'RETRO, k=1',
    'RETRO off',
    'baseline',
  ]
  assert found[0]['bits_per_byte'] != found[1]['bits_per_byte']
  (want,) = runs['baseline'].loglikelihood(
    'river queen tensor\n\nTL; DR:', ' river moon'
  )
  row = _run(
    tmp_path / 'retro', 'summary', path, **{'examples.max_examples': 1}
  )
  bits = want.nats / math.log(2) / len(b' river moon')
  assert row[2]['bits_per_byte'] == pytest.approx(bits, rel=1e-5)


def test_errors_name_what_is_wrong(tmp_path):
  def read(path):
    settings = retro_evaluate.Examples(path=str(path))
    return retro_examples.read(settings, ('article', 'text'), ('summary',))

  with pytest.raises(FileNotFoundError, match='none.jsonl'):
    read(tmp_path / 'none.jsonl')
  rows = [{'text': 'a', 'summary': 'b'}, {'text': 'a'}]
  with pytest.raises(ValueError, match="jsonl:2: .*'summary'"):
    read(_examples(tmp_path, rows))
  with pytest.raises(ValueError, match='no example'):
    read(_examples(tmp_path, []))
