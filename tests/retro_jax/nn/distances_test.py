# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Relative positions: their vectors, their logits, and the move to keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend
from retro_jax.nn import distances


@pytest.mark.parametrize(('queries', 'keys'), [(1, 1), (3, 5), (6, 2), (4, 4)])
def test_shift_to_keys(queries, keys):
  first = np.arange(queries - 1.0, -keys - 1, -1)
  rows = np.broadcast_to(first, (2, queries, len(first)))
  expected = np.arange(queries)[:, None] - np.arange(keys)
  shifted = distances.shift_to_keys(jnp.asarray(rows), keys)
  np.testing.assert_array_equal(shifted, np.stack([expected] * 2))


def test_shift_to_keys_has_the_gradient_of_a_gather():
  rng = np.random.default_rng(0)
  queries, keys = 3, 4
  columns = queries - 1 - np.arange(queries)[:, None] + np.arange(keys)

  def gather(x):
    return jnp.take_along_axis(x, jnp.asarray(columns)[None], axis=-1)

  x = jnp.asarray(rng.standard_normal((2, queries, 7)), jnp.float32)
  g = jnp.asarray(rng.standard_normal((2, queries, keys)), jnp.float32)
  expected = jax.vjp(gather, x)[1](g)[0]
  for shift in (distances.shift_to_keys, distances._shift_on_cpu):
    ours = jax.vjp(lambda x, shift=shift: shift(x, keys), x)[1](g)
    np.testing.assert_allclose(ours[0], expected, rtol=1e-6)


@pytest.mark.parametrize('is_cpu', [True, False])
@pytest.mark.parametrize('queries', [1, 7, 16, 23, 48])
def test_position_logits_of_every_distance(queries, is_cpu, monkeypatch):
  """The key of distance d is d itself, whatever the blocks."""
  keys = 5
  relative = np.arange(queries - 1, -keys - 1, -1.0)[None, :, None]
  monkeypatch.setattr(backend, 'is_cpu', lambda: is_cpu)
  logits = distances.logits(
    jnp.ones((1, 2, 3 * queries, 1)), jnp.asarray(relative), queries, keys
  )
  expected = np.arange(queries)[:, None] - np.arange(keys)
  np.testing.assert_array_equal(logits[0, 1], np.concatenate([expected] * 3))


def test_position_vectors():
  vectors = distances.vectors(5, -2, 6, 100.0)
  assert vectors.shape == (8, 6)
  angles = 5 * 100.0 ** (-np.array([0, 2, 4]) / 6)
  np.testing.assert_allclose(
    vectors[0], np.concatenate([np.sin(angles), np.cos(angles)])
  )
  np.testing.assert_array_equal(vectors[5], [0, 0, 0, 1, 1, 1])
  clamped = distances.vectors(5, -2, 6, 100.0, 1)
  np.testing.assert_array_equal(clamped[0], vectors[4])


def test_causal_logits_need_no_distances_after_the_query(monkeypatch):
  rng = np.random.default_rng(0)
  queries, keys = 4, 9  # the last queries of 9 tokens
  q = jnp.asarray(rng.standard_normal((2, 3, queries, 5)))
  relative = jnp.asarray(rng.standard_normal((2, queries + keys, 5)))
  whole = distances.logits(q, relative, queries, keys)
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  cut = distances.logits(q, relative, queries, keys, True)
  seen = np.arange(keys) <= np.arange(keys - queries, keys)[:, None]
  np.testing.assert_allclose(cut[..., seen], whole[..., seen], rtol=1e-5)


@pytest.mark.parametrize('width', [6, 7])
@pytest.mark.parametrize('x64', [False, True])
def test_vectors_that_accelerators_compute(width, x64, monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  dtype, close = ('float64', 1e-13) if x64 else ('float32', 3e-7)
  with jax.enable_x64(x64):
    found = distances.vectors_of(2000, -130, width, 1e4, 0, dtype)
    clamped = distances.vectors_of(9, -9, width, 1e4, 3, dtype)
  assert found.dtype == dtype
  expected = distances.vectors(2000, -130, width, 1e4)
  np.testing.assert_allclose(found, expected, rtol=0, atol=close)
  expected = distances.vectors(9, -9, width, 1e4, 3)
  np.testing.assert_allclose(clamped, expected, rtol=0, atol=1e-6)
