# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The weight of hybrid neighbors against slow overlaps with the following chunk."""

import json
import types

import numpy as np
import pytest

from experiments.engine import hybrid_weights
from experiments.retro import tune_hybrid
from retrieval.index import neighbors as neighbors_lib, text_index
from retrieval.search import retriever as retriever_lib
from retro_jax.data import datastore as datastore_lib
from tests.experiments.retro import tiny_config
from tests.retrieval.index import retrievers_test
from tests.retrieval.store import tiny_stores

K = 3


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_stores.make(root, np.random.default_rng(0))
  train = made.chunks['train']
  words = text_index.TextIndices(root, train).words('bm25')
  words = retriever_lib.IndexRetriever(train, words, 'bm25')
  # Random chunks stand for those of vectors.
  return types.SimpleNamespace(
    root=root, train=train, parts=[retriever_lib.Random(train), words]
  )


def _tokens(chunks, i, start, limit):
  tokens, mask = chunks.gather(np.array([i]), limit)
  return tokens[0, start:][mask[0, start:]].tolist()


def _slow(data, part, shard, rows):
  """Shares [n, K] of the following chunk, of chunks that one follows."""
  m, found = data.train.chunk_length, []
  ids, _ = neighbors_lib.of_chunks(part, data.train, shard, rows, K)
  for own, neighbors in zip(data.train.ids(shard, rows), ids, strict=True):
    following = _tokens(data.train, own, m, 2 * m)
    if following:
      shared = [
        retrievers_test.common(following, _tokens(data.train, i, 0, 2 * m))
        if i >= 0
        else 0
        for i in neighbors
      ]
      found.append(np.array(shared) / len(following))
  return np.array(found)


def test_the_ends_are_the_parts_alone(data):
  runs = [(0, slice(0, 12)), (1, slice(3, 9))]
  values = tune_hybrid.measure(
    data.train, data.parts, [1.0], runs, K, lambda *_: None
  )
  assert list(values) == ['ranks', '1']
  for number, run in enumerate(runs):
    slow = _slow(data, data.parts[1], *run)
    want = {
      'mean': slow.mean(),
      'first': slow[:, 0].mean(),
      'best': slow.max(1).mean(),
    }
    for name, value in want.items():
      assert values['1'][name][number] == pytest.approx(value, rel=1e-6)
    assert 0 < values['ranks']['mean'][number] < 1


def test_runs_are_random_rows_of_the_datastore(data):
  total = data.train.num_chunks
  everything = list(tune_hybrid.runs_of(data.train, total, 0))
  ids = np.concatenate([data.train.ids(*run) for run in everything])
  assert sorted(ids.tolist()) == list(range(total))
  few = list(tune_hybrid.runs_of(data.train, 40, 0))
  assert few == everything[: len(few)]
  assert 40 <= sum(rows.stop - rows.start for _, rows in few) < 72
  assert list(tune_hybrid.runs_of(data.train, 40, 1)) != few


def test_command(data, tmp_path, monkeypatch, capsys):
  made = dict(zip(('dense', 'bm25'), data.parts, strict=True))
  monkeypatch.setattr(
    datastore_lib.Datastore,
    'retrievers',
    lambda *_: types.SimpleNamespace(make=made.get),
  )
  tuning = tune_hybrid.TuneHybrid(
    weights=(0.0, 0.5), max_chunks=40, num_neighbors=K
  )
  config = tiny_config.of(data_dir=str(data.root))
  tune_hybrid.tune_hybrid(config, str(tmp_path), tuning)
  found = json.loads((tmp_path / hybrid_weights.FILE).read_text())
  printed = capsys.readouterr().out
  assert f'--config.neighbors.words_weight={found["chosen"]:g}.' in printed
  means = {w: x['mean']['mean'] for w, x in found['weights'].items()}
  assert list(means) == ['ranks', '0', '0.5']
  best = max(('0', '0.5'), key=means.get)
  assert found['chosen'] == float(best)
