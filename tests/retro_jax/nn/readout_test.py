# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The loss in blocks equals the whole one, and no array holds all logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend
from retro_jax.nn import readout


@pytest.mark.parametrize('is_cpu', [True, False])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_blocks_change_nothing(dtype, is_cpu, monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: is_cpu)
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.standard_normal((3, 8, 5)), dtype)
  table = jnp.asarray(rng.standard_normal((11, 5)), jnp.float32)
  targets = jnp.asarray(rng.integers(0, 11, (3, 8)))
  weights = jnp.asarray(rng.standard_normal((3, 8)), jnp.float32)

  def loss(x, table):
    nats = readout.nll(x, table, targets)
    return (nats * weights).sum(), nats

  def run():
    return jax.value_and_grad(loss, (0, 1), has_aux=True)(x, table)

  (whole, nats), gradients = run()
  monkeypatch.setattr(readout, 'BLOCK', 33)  # three tokens of eight
  (cut, blocks_nats), blocks_gradients = run()
  np.testing.assert_allclose(blocks_nats, nats, rtol=1e-6)
  np.testing.assert_allclose(cut, whole, rtol=1e-6)
  close = 1e-6 if dtype == 'float32' else 1e-2
  for ours, theirs in zip(blocks_gradients, gradients, strict=True):
    ours, theirs = np.float32(ours), np.float32(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=close, atol=close)

  def plain(x, table):
    logits = jnp.einsum('BLD,VD->BLV', x, table.astype(dtype))
    scores = -jax.nn.log_softmax(logits.astype('float32'))
    nats = jnp.take_along_axis(scores, targets[..., None], -1)[..., 0]
    return (nats * weights).sum(), nats

  _, expected = plain(x, table)
  close = 1e-5 if dtype == 'float32' else 0.05
  np.testing.assert_allclose(nats, expected, rtol=0, atol=close)
  for a, b in zip(
    gradients, jax.grad(plain, (0, 1), has_aux=True)(x, table)[0], strict=True
  ):
    np.testing.assert_allclose(
      np.float32(a), np.float32(b), rtol=close, atol=close
    )

  frozen = jax.grad(lambda x: loss(x, table)[0])(x)  # RETROfit's table
  np.testing.assert_array_equal(frozen, blocks_gradients[0])
  jaxpr = jax.make_jaxpr(jax.grad(lambda *a: loss(*a)[0], (0, 1)))(x, table)
  assert str(jaxpr).count('[3,3,11]') and '[3,8,11]' not in str(jaxpr)
