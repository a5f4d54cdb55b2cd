# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Relative positions: their vectors, logits, and move to keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend
from retro_jax.nn import positions


@pytest.mark.parametrize('is_cpu', [True, False])
@pytest.mark.parametrize('queries', [1, 7, 32])
def test_position_logits_and_gradients_are_those_of_a_gather(
  queries, is_cpu, monkeypatch
):
  """Of two copies of the queries, whatever the blocks."""
  monkeypatch.setattr(backend, 'is_cpu', lambda: is_cpu)
  rng, keys = np.random.default_rng(0), 5
  columns = queries - 1 - np.arange(queries)[:, None] + np.arange(keys)

  def gathered(q, relative):
    copies = q.reshape(2, 3, 2, queries, 4)
    by_key = relative[:, jnp.asarray(columns)]
    found = jnp.einsum('HNCQK,HQSK->HNCQS', copies, by_key)
    return found.reshape(2, 3, 2 * queries, keys)

  args = [
    jnp.asarray(rng.standard_normal(shape), jnp.float32)
    for shape in ((2, 3, 2 * queries, 4), (2, queries + keys, 4))
  ]
  g = jnp.asarray(rng.standard_normal((2, 3, 2 * queries, keys)), jnp.float32)

  def ours(q, relative):
    return positions.logits(q, relative, queries, keys)

  def of(function):
    value, gradients = jax.vjp(function, *args)
    return value, *gradients(g)

  for x, y in zip(jax.jit(lambda: of(ours))(), of(gathered), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('width', [6, 7])
@pytest.mark.parametrize('x64', [False, True])
def test_vectors_that_accelerators_compute(width, x64, monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  dtype, close = ('float64', 1e-13) if x64 else ('float32', 3e-7)
  with jax.enable_x64(x64):
    found = positions.vectors_of(2000, -130, width, 1e4, dtype)
  assert found.dtype == dtype
  expected = positions.vectors(2000, -130, width, 1e4)
  np.testing.assert_allclose(found, expected, rtol=0, atol=close)
