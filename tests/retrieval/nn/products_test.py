# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Hand-written gradients equal automatic ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.nn import products

RNG = np.random.default_rng(0)


def _same_gradients(function, plain, *args):
  """Values and gradients in float64, with a random cotangent."""
  with jax.enable_x64(True):
    args = [jnp.asarray(RNG.standard_normal(shape)) for shape in args]
    value, vjp = jax.vjp(function, *args)
    expected, plain_vjp = jax.vjp(plain, *args)
    g = jnp.asarray(RNG.standard_normal(value.shape))
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(vjp(g), plain_vjp(g), strict=True):
      np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('shapes', [((2, 3, 4), (4, 6)), ((5, 7), (7, 2))])
def test_linear(shapes):
  _same_gradients(products.linear, lambda x, w: x @ w, *shapes)


def test_scores():
  _same_gradients(
    products.scores,
    lambda q, k: jnp.einsum('HXQK,HXSK->HXQS', q, k),
    (2, 3, 5, 4),
    (2, 3, 7, 4),
  )


@pytest.mark.parametrize('copies', [0, 1, 3])
@pytest.mark.parametrize('masked', [False, True])
@pytest.mark.parametrize('dropped', [False, True])
def test_attend(copies, masked, dropped):
  num_keys = 6
  keep = RNG.random((2, 2, 5, num_keys)) < 0.6 if dropped else None
  mask = jnp.asarray(RNG.random((1, 2, 1, num_keys)) < 0.6) if masked else None

  def plain(q, k, v, *bias):
    logits = jnp.einsum('HNQK,HNSK->HNQS', q, k)
    if bias:
      logits = logits + jnp.concatenate([bias[0]] * copies, axis=-1)
    if mask is not None:
      logits = jnp.where(mask, logits, -jnp.inf)
    weights = jax.nn.softmax(logits)
    return (weights if keep is None else weights * keep) @ v

  def ours(q, k, v, *bias):
    return products.attend(q, k, v, bias[0] if bias else None, mask, keep)

  shapes = [(2, 2, 5, 4), (2, 2, num_keys, 4), (2, 2, num_keys, 4)]
  if copies:
    shapes.append((2, 2, 5, num_keys // copies))
  _same_gradients(ours, plain, *shapes)
