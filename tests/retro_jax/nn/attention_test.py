# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention makes no array larger than its logits."""

import jax
import jax.numpy as jnp

from tests.retrieval.kernels import products_test
from tests.retro_jax.nn import tiny


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
  made = [v.aval for x in products_test.equations(jaxpr) for v in x.outvars]
  largest = max(x.size for x in made if hasattr(x, 'size'))
  assert 0.9 * logits < largest <= 1.15 * logits
