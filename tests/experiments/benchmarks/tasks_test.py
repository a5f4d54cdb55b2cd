# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Our sides of the benchmarks at sizes that say nothing of speed."""

import numpy as np
import pytest

from experiments.benchmarks import benchmark, search, shards, sparse
from experiments.engine import optimizers
from retrieval.store import store_writer
from retrieval.text import corpus as corpus_lib

_BERT = {
  'vocab_size': 1100, 'd_model': 16, 'num_layers': 1, 'num_heads': 2,
  'd_ff': 16,
}  # fmt: skip
_RETRO = {
  'vocab_size': 50, 'd_model': 16, 'num_layers': 1, 'cca_layers': (1,),
  'num_heads': 2, 'head_dim': 8, 'encoder_num_layers': 1, 'chunk_length': 4,
  'neighbor_length': 8, 'length': 16, 'batch': 1,
}  # fmt: skip
_SIZES = {
  'retro': _RETRO,
  'decode': _RETRO | {'lengths': (16,)},
  'realm': _BERT | {'num_candidates': 2, 'query_length': 12, 'block_length': 8},
  'qa': _BERT
  | {
    'vocab_size': 30_522,
    'num_blocks': 100,
    'row_length': 64,
    'batch': 2,
    'retriever_beam': 20,
  },
  'search': {'num_rows': 2000, 'dimension': 16, 'num_queries': 50},
  'released': {'shape': (1000, 16), 'num_queries': 3},
  'shards': {'num_rows': 1500, 'dimension': 16, 'num_queries': 30},
}


def _steps(name, side, folder, **sizes):
  """Prepare a benchmark in this process; return a side's steps."""
  task = benchmark.load(name)
  given = {**task.sizes, **sizes, 'num_threads': 2, 'folder': str(folder)}
  given |= task.prepare(given)
  return task.build(side, given)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['retro', 'decode', 'realm', 'qa'])
def test_sides_of_ours(name, tmp_path):
  found = benchmark.run(name, _SIZES[name], str(tmp_path), repeats=1)
  values = [x for sides in found.values() for x in sides.values()]
  assert all(x['wall_sec'] > 0 and x['peak_gib'] > 0 for x in values)
  if name == 'decode':
    drawn = {side: x['items'] for side, x in found['16'].items()}
    assert drawn == {'cached': 15, 'whole': 4}
  elif name == 'retro':
    assert [x['items'] for x in values] == [16, 16]


def test_questions_are_trained_with_the_optimizer_of_bert(
  tmp_path, monkeypatch
):
  def stop(config, num_steps):
    raise InterruptedError(config)

  monkeypatch.setattr(optimizers, 'make_optimizer', stop)
  with pytest.raises(InterruptedError) as error:
    _steps('qa', 'ours', tmp_path, **_SIZES['qa'])
  [config] = error.value.args
  assert (config.learning_rate, config.weight_decay) == (1e-5, 0.01)
  assert config.decay_mask == 'bert' and config.warmup_steps


@pytest.mark.parametrize('metric', ['dot_product', 'squared_l2'])
def test_searchers_and_their_recall(metric, tmp_path):
  sizes = _SIZES['search'] | {'metric': metric}
  steps = _steps('search', 'ours', tmp_path, **sizes)
  kinds = ('ScaNN', 'ScaNN SOAR')[: 1 + (metric == 'dot_product')]
  names = [f'{kind} 1/{x}' for kind in kinds for x in (40, 20, 10, 5, 3)]
  assert list(steps) == ['exact', 'matrix product alone', *names]
  recalls = {name: step()['recall'] for name, step in steps.items()}
  assert recalls['exact'] == 1 and not recalls.pop('matrix product alone')
  assert all(0.1 < x <= 1 for x in recalls.values())


def test_vectors_are_read_from_arrays_and_stores(tmp_path):
  vectors = np.ones((5, 3), np.float16)
  np.save(tmp_path / 'v.npy', vectors)
  writer = store_writer.StoreWriter(tmp_path / 'v', 'vectors', {})
  writer.write(0, {'vectors': vectors})
  writer.publish(1)
  for name in ('v.npy', 'v'):
    found = search.read(str(tmp_path / name))
    np.testing.assert_array_equal(found, vectors)
    assert found.dtype == np.float32


def test_as_many_vectors_as_were_released(tmp_path):
  steps = _steps('released', 'exact', tmp_path, **_SIZES['released'])
  assert steps['search']()['items'] == 3
  assert (tmp_path / 'vectors.npy').stat().st_size == 128 + 1000 * 16 * 2


@pytest.mark.slow
def test_indices_in_shards(tmp_path, monkeypatch):
  cases = {
    'exact, 1': {'searcher': 'exact', 'shards': 1},
    'exact, 3': {'searcher': 'exact', 'shards': 3},
  }
  monkeypatch.setattr(shards, 'INDICES', cases)
  sides = benchmark.load('shards').sides
  assert sides[:3] == ('ScaNN, 1', 'ScaNN, 4 held 1', 'ScaNN, 4')
  for i, side in enumerate(('exact, 1', 'exact, 3 held 1', 'exact, 3')):
    folder = tmp_path / str(i)
    folder.mkdir()
    steps = _steps('shards', side, folder, **_SIZES['shards'])
    found = steps['search']()
    assert found['recall'] == 1 and found['items'] == 30


@pytest.fixture
def passages():
  words = [f'word{i}' for i in range(300)]
  text = ' '.join(np.random.default_rng(0).choice(words, 20_050))
  return sparse.passages_of([corpus_lib.Document('a', 'Title', text)])


def test_sparse_sides_find_the_same_passages(passages, tmp_path):
  assert len(passages) == 201 and passages[-1].count(' ') == 49
  file = tmp_path / 'corpus.jsonl'
  rows = [f'{{"id": "{i}", "title": "t", "text": "{x}"}}' for i, x in enumerate(
    ' '.join(x.split()[1:]) for x in passages)]  # fmt: skip
  file.write_text('\n'.join(rows))
  sizes = {'corpus': str(file), 'num_queries': 20, 'k': 5}
  for side in ('BM25', 'bm25s'):
    steps = _steps('sparse', side, tmp_path, **sizes)
    assert steps['build']()['items'] == 201
    for length in (8, 64):
      same = steps[f'{length} words']()['same']
      assert same == 1 if side == 'BM25' else same > 0.97
