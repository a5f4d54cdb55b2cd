# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The GPU's kernel of exact search, interpreted here."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from retrieval import searchers
from retrieval.kernels import backend
from retrieval.searchers import block_search, tiles_gpu

METRICS = 'dot_product', 'squared_l2'
_TILE, _COLUMNS, _COUNT = 128, 32, 250


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)


@pytest.mark.parametrize('num_queries', [8, 64])
@pytest.mark.parametrize('metric', METRICS)
def test_the_best_two_of_each_group(metric, num_queries):
  rng = np.random.default_rng(0)
  queries = rng.standard_normal((num_queries, 48)).astype(np.float32)
  rows = rng.standard_normal((2 * _TILE, 48)).astype(ml_dtypes.bfloat16)
  wide = rows.astype(np.float64)
  norms = (wide**2).sum(axis=1)
  assert tiles_gpu.suits(jnp.asarray(rows), _COLUMNS)
  best, second, at = tiles_gpu.summarize(
    jnp.asarray(queries),
    jnp.asarray(rows),
    jnp.asarray(norms, jnp.float32),
    jnp.int32(_COUNT),
    metric=metric,
    tile=_TILE,
    columns=_COLUMNS,
  )
  scores = queries.astype(np.float64) @ wide.T
  if metric == 'squared_l2':
    scores = 2 * scores - norms
  scores[:, _COUNT:] = -np.inf
  scores = scores.reshape(num_queries, 2, -1, _COLUMNS)
  order = np.sort(scores, axis=2)
  shape = num_queries, -1
  np.testing.assert_allclose(best, order[:, :, -1].reshape(shape), atol=1e-4)
  np.testing.assert_allclose(second, order[:, :, -2].reshape(shape), atol=1e-4)
  np.testing.assert_array_equal(at, scores.argmax(axis=2).reshape(shape))


@pytest.mark.parametrize('metric', METRICS)
def test_searches_exactly(metric, monkeypatch):
  monkeypatch.setattr(block_search, '_TILE', 256)
  monkeypatch.setattr(block_search, '_TILE_GROUPS', (8, 4))
  block_search.search_block.clear_cache()
  asked = []
  summarize = tiles_gpu.summarize
  monkeypatch.setattr(
    tiles_gpu,
    'summarize',
    lambda *x, **y: asked.append(x) or summarize(*x, **y),
  )
  rng = np.random.default_rng(0)
  database = rng.standard_normal((5000, 16)).astype(ml_dtypes.bfloat16)
  queries = rng.standard_normal((3, 16)).astype(np.float32)
  searcher = searchers.ExactSearcher(
    database, metric, devices=jax.devices()[:2]
  )
  ids, _ = searcher.search(queries, 10)
  wide = database.astype(np.float64)
  scores = queries.astype(np.float64) @ wide.T
  if metric == 'squared_l2':
    scores = 2 * scores - (wide**2).sum(axis=1)
  np.testing.assert_array_equal(ids, np.argsort(-scores)[:, :10])
  assert asked
  block_search.search_block.clear_cache()
