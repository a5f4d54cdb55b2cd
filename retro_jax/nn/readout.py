# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""READ of algorithm 1: logits of the next tokens, and their loss without all logits.

Dimension key: B batch, L tokens, D model width, V vocabulary.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy.typing as npt

from retrieval.nn import backend, partitioning, products

# Logits of one row that exist at a time: 128 MiB in float32.
BLOCK = 2**25


def logits(
  x: Float[Array, 'B L D'], table: Float[Array, 'V D'], dtype: npt.DTypeLike
) -> Float[Array, 'B L V']:
  """Return x @ table^T, products of `dtype` accumulated in float32 or wider."""
  found = products.table_logits(x, table.astype(dtype))
  return partitioning.constrain(found, 'batch', 'length', 'vocab')


def _chosen(found, targets):
  """Return the logits of the targets: [B, L]."""
  if backend.is_cpu():
    return jnp.take_along_axis(found, targets[..., None], axis=-1)[..., 0]
  # The cotangent is one pass over the logits, not a scatter into them.
  is_target = jnp.arange(found.shape[-1]) == targets[..., None]
  return jnp.where(is_target, found, 0).sum(axis=-1)


def nll(
  x: Float[Array, 'B L D'],
  table: Float[Array, 'V D'],
  targets: Int[Array, 'B L'],
  dtype: npt.DTypeLike,
) -> Float[Array, 'B L']:
  """Return the negative log-likelihood of each target, in nats.

  Logits are made block by block of the tokens, and again in the backward pass:
  those of all tokens never exist together.
  """

  def of_block(block):
    x, targets = block
    found = logits(x, table, dtype)
    return jax.nn.logsumexp(found, axis=-1) - _chosen(found, targets)

  batch, length = targets.shape
  blocks = -(-length * len(table) // BLOCK)
  if blocks == 1:
    return of_block((x, targets))
  size = -(-length // blocks)

  def split(y):
    padding = ((0, 0), (0, blocks * size - length), *[(0, 0)] * (y.ndim - 2))
    y = jnp.pad(y, padding).reshape(batch, blocks, size, *y.shape[2:])
    return jnp.moveaxis(y, 1, 0)

  found = jax.lax.map(jax.checkpoint(of_block), (split(x), split(targets)))
  return jnp.moveaxis(found, 0, 1).reshape(batch, -1)[:, :length]
