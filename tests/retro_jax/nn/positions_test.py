# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Relative positions: their vectors, logits, and move to keys; and others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend
from retro_jax.nn import positions
from tests.retro_jax.nn import tiny


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


def test_position_vectors():
  vectors = positions.vectors(5, -2, 6, 100.0)
  assert vectors.shape == (8, 6)
  angles = 5 * 100.0 ** (-np.array([0, 2, 4]) / 6)
  np.testing.assert_allclose(
    vectors[0], np.concatenate([np.sin(angles), np.cos(angles)])
  )
  np.testing.assert_array_equal(vectors[5], [0, 0, 0, 1, 1, 1])


def test_causal_logits_need_no_positions_after_the_query(monkeypatch):
  rng = np.random.default_rng(0)
  queries, keys = 4, 9  # the last queries of 9 tokens
  q = jnp.asarray(rng.standard_normal((2, 3, queries, 5)))
  relative = jnp.asarray(rng.standard_normal((2, queries + keys, 5)))
  whole = positions.logits(q, relative, queries, keys)
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  cut = positions.logits(q, relative, queries, keys, True)
  seen = np.arange(keys) <= np.arange(keys - queries, keys)[:, None]
  np.testing.assert_allclose(cut[..., seen], whole[..., seen], rtol=1e-5)


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


def test_other_positions_are_those_of_self_attention_alone():
  c = tiny.config(**tiny.LLAMA)
  own, cross = c.attention_of('decoder'), c.attention_of('cca')
  assert own.rotary_base == 50 and own.num_kv_heads == 2
  assert not own.relative_positions
  for paper in (cross, c.attention_of('encoder'), c.attention_of('ca')):
    assert not paper.rotary_base and not paper.num_kv_heads
    assert paper.relative_positions


def test_positions_in_documents():
  rows = jnp.array(
    [[0, 0, 1, 1, 1, 2, 2, 0], [1] * 8, [7, 7, 7, 7, 1, 1, 1, 1]]
  )
  expected = [[0, 1, 0, 1, 2, 0, 1, 0], list(range(8)), [0, 1, 2, 3] * 2]
  np.testing.assert_array_equal(positions.in_rows(8, rows), expected)


def test_products_of_turned_vectors_depend_on_distance():
  x, y = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 6))

  def product(i, j):
    at_i, at_j = jnp.array([[[i]], [[j]]], jnp.int32)
    turned = positions.rotate(x, at_i, 100.0), positions.rotate(y, at_j, 100.0)
    return float(jnp.vdot(*turned))

  assert product(7, 4) == pytest.approx(product(103, 100), abs=1e-4)
  assert product(7, 4) != pytest.approx(product(4, 7), abs=1e-2)
  assert product(5, 5) == pytest.approx(float(jnp.vdot(x, y)), abs=1e-5)
