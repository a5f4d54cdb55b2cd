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


@pytest.mark.parametrize(('queries', 'keys'), [(1, 1), (3, 5), (6, 2), (4, 4)])
def test_shift_to_keys(queries, keys):
  first = np.arange(queries - 1.0, -keys - 1, -1)
  rows = np.broadcast_to(first, (2, queries, len(first)))
  expected = np.arange(queries)[:, None] - np.arange(keys)
  shifted = positions.shift_to_keys(jnp.asarray(rows), keys)
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
  for shift in (positions.shift_to_keys, positions._shift_on_cpu):
    ours = jax.vjp(lambda x, shift=shift: shift(x, keys), x)[1](g)
    np.testing.assert_allclose(ours[0], expected, rtol=1e-6)


@pytest.mark.parametrize('is_cpu', [True, False])
@pytest.mark.parametrize('queries', [1, 7, 16, 23, 48])
def test_position_logits_of_every_distance(queries, is_cpu, monkeypatch):
  """The key of distance d is d itself, whatever the blocks."""
  keys = 5
  relative = np.arange(queries - 1, -keys - 1, -1.0)[None, :, None]
  monkeypatch.setattr(backend, 'is_cpu', lambda: is_cpu)
  logits = positions.logits(
    jnp.ones((1, 2, 3 * queries, 1)), jnp.asarray(relative), queries, keys
  )
  expected = np.arange(queries)[:, None] - np.arange(keys)
  np.testing.assert_array_equal(logits[0, 1], np.concatenate([expected] * 3))


def test_position_vectors():
  vectors = positions.vectors(5, -2, 6, 100.0)
  assert vectors.shape == (8, 6)
  angles = 5 * 100.0 ** (-np.array([0, 2, 4]) / 6)
  np.testing.assert_allclose(
    vectors[0], np.concatenate([np.sin(angles), np.cos(angles)])
  )
  np.testing.assert_array_equal(vectors[5], [0, 0, 0, 1, 1, 1])
  clamped = positions.vectors(5, -2, 6, 100.0, 1)
  np.testing.assert_array_equal(clamped[0], vectors[4])


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
    found = positions.vectors_of(2000, -130, width, 1e4, 0, dtype)
    clamped = positions.vectors_of(9, -9, width, 1e4, 3, dtype)
  assert found.dtype == dtype
  expected = positions.vectors(2000, -130, width, 1e4)
  np.testing.assert_allclose(found, expected, rtol=0, atol=close)
  expected = positions.vectors(9, -9, width, 1e4, 3)
  np.testing.assert_allclose(clamped, expected, rtol=0, atol=1e-6)


def test_other_positions_are_those_of_self_attention_alone():
  c = tiny.config(**tiny.LLAMA)
  own, cross = c.decoder_attention(), c.decoder_attention(cross=True)
  assert own.rotary_base == 50 and own.num_kv_heads == 2
  assert not own.relative_positions and not own.position_biases
  for paper in (cross, c.encoder_attention(), c.encoder_attention(cross=True)):
    assert not paper.rotary_base and not paper.num_kv_heads
    assert paper.relative_positions and paper.position_biases


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
