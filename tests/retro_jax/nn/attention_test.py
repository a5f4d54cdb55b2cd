# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention makes no array larger than its logits."""

import jax
import jax.numpy as jnp

from tests.retro_jax.nn import tiny


def _largest(jaxpr):
  """The largest array that any equation makes."""
  sizes = [0]
  for equation in jaxpr.eqns:
    sizes += [v.aval.size for v in equation.outvars if hasattr(v.aval, 'size')]
    for value in equation.params.values():
      for inner in value if isinstance(value, tuple | list) else (value,):
        inner = getattr(inner, 'jaxpr', inner)
        if hasattr(inner, 'eqns'):
          sizes.append(_largest(inner))
  return max(sizes)


def test_no_array_is_larger_than_attention_logits():
  """At sizes where logits outweigh the streams, gradients included."""
  c = tiny.config(
    chunk_length=64,
    neighbor_length=128,
    num_heads=4,
    encoder_num_heads=4,
    num_layers=2,
    cca_layers=(1, 2),
  )
  length, neighbors = 256, 2
  tokens, retrieved, mask = tiny.inputs(
    c, batch=1, length=length, neighbors=neighbors
  )

  def loss(p):
    return jnp.sum(tiny.apply(c, p, tokens, retrieved, mask))

  jaxpr = jax.make_jaxpr(jax.grad(loss))(tiny.params(c)).jaxpr
  chunks = length // 64
  logits = max(
    c.num_heads * length * length,
    c.num_heads * chunks * 64 * neighbors * 128,
    c.encoder_num_heads * chunks * neighbors * 128 * 128,
  )
  assert _largest(jaxpr) <= 1.15 * logits
