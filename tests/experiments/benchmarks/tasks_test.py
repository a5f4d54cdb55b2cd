# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Our sides of the benchmarks at sizes that say nothing of speed."""

import json

import numpy as np
import pytest

from experiments.benchmarks import benchmark

_SIZES = {
  'retro': {
    'vocab_size': 50, 'd_model': 16, 'num_layers': 1, 'cca_layers': (1,),
    'num_heads': 2, 'head_dim': 8, 'encoder_num_layers': 1, 'chunk_length': 4,
    'neighbor_length': 8, 'length': 16, 'batch': 1,
  },
  'realm': {
    'vocab_size': 1100, 'd_model': 16, 'num_layers': 1, 'num_heads': 2,
    'd_ff': 16, 'num_candidates': 2, 'query_length': 12, 'block_length': 8,
  },
}  # fmt: skip


def _steps(name, side, folder, **sizes):
  """Prepare a benchmark in this process; return a side's steps."""
  task = benchmark.load(name)
  given = {**task.SIZES, **sizes, 'num_threads': 2, 'folder': str(folder)}
  given |= task.prepare(given)
  return task.SIDES[side](given)


@pytest.mark.slow
@pytest.mark.parametrize('name', [*_SIZES])
def test_sides_of_ours(name):
  found = benchmark.run(name, _SIZES[name], repeats=1)
  assert ('train', 'ours') in found
  assert all(x['seconds'] > 0 and x['GiB'] > 0 for x in found.values())


@pytest.mark.parametrize('metric', ['dot_product', 'squared_l2'])
def test_searchers_and_their_recall(metric, tmp_path):
  sizes = {'num_rows': 2000, 'dimension': 16, 'num_queries': 50}
  steps = _steps('search', 'ours', tmp_path, metric=metric, **sizes)
  names = [f'ScaNN 1/{x}' for x in (40, 20, 10, 5, 3)]
  assert list(steps) == ['exact', 'product', *names]
  recalls = {name: step()['recall'] for name, step in steps.items()}
  assert recalls['exact'] == 1 and not recalls.pop('product')
  assert all(0.1 < x <= 1 for x in recalls.values())


def test_sparse_sides_find_the_same_passages(tmp_path):
  words = [f'word{i}' for i in range(300)]
  text = ' '.join(np.random.default_rng(0).choice(words, 20_050))
  file = tmp_path / 'corpus.jsonl'
  file.write_text(json.dumps({'id': 'a', 'title': 'Title', 'text': text}))
  sizes = {'corpus': str(file), 'num_queries': 20, 'k': 5}
  for side in ('BM25', 'bm25s'):
    steps = _steps('sparse', side, tmp_path, **sizes)
    assert steps['build']()['items'] == 201
    for length in (8, 64):
      same = steps[f'{length} words']()['same']
      assert same == 1 if side == 'BM25' else same > 0.97
