# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""READ of algorithm 1: logits of the next tokens, and their loss without all logits.

Dimension key: B batch, L tokens, D model width, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from retrieval.kernels import backend, derivatives, products
from retrieval.nn import partitioning

# Logits of one row that exist at a time: 128 MiB in float32.
BLOCK = 2**25


def logits(
  x: Float[Array, 'B L D'], table: Float[Array, 'V D']
) -> Float[Array, 'B L V']:
  """Return x @ table^T, products of x's dtype accumulated in float32 or wider."""
  found = products.table_logits(x, table.astype(x.dtype))
  return partitioning.constrain(found, 'batch', 'length', 'vocab')


def _is_target(found, targets):
  return jnp.arange(found.shape[-1]) == targets[..., None]


def _sums(x, table, targets):
  """Return the logarithm of the sum of exponentials, and the target's logit."""
  found = logits(x, table)
  most = found.max(axis=-1)
  zero = jnp.zeros((), found.dtype)
  total, chosen = jax.lax.reduce(  # one pass over the logits
    (
      jnp.exp(found - most[..., None]),
      jnp.where(_is_target(found, targets), found, zero),
    ),
    (zero, zero),
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    (found.ndim - 1,),
  )
  return most + jnp.log(total), chosen


@jax.custom_jvp
def _nll(x, table, narrow, targets):
  """Return the nats of a block: [B, L].

  The backward pass makes the logits again; it keeps the logarithms of the sums. The
  gradient is of `table`; `narrow` is the table in x's dtype.
  """
  del table
  total, chosen = _sums(x, narrow, targets)
  return total - chosen


def _nll_jvp(primals, tangents):
  x, table, narrow, targets = primals
  total, chosen = _sums(x, narrow, targets)

  def weights(x, narrow, targets, total):
    found = logits(x, narrow)
    return jnp.exp(found - total[..., None]) - _is_target(found, targets)

  def tangent(given, d):
    x, narrow, *_ = given
    d_x, d_table = d
    change = logits(d_x, narrow) + logits(x, d_table)
    return (weights(*given) * change).sum(axis=-1)

  def transpose(given, g):
    x, narrow, *_ = given
    d = (weights(*given) * g[..., None]).astype(x.dtype)
    product = functools.partial(jnp.einsum, preferred_element_type=g.dtype)
    d_x = product('BLV,VD->BLD', d, narrow).astype(x.dtype)
    return d_x, product('BLV,BLD->VD', d, x).astype(table.dtype)

  given = x, narrow, targets, total
  d = derivatives.linear_call(tangent, transpose, given, tangents[:2])
  return total - chosen, d


_nll.defjvp(_nll_jvp, symbolic_zeros=True)


def nll(
  x: Float[Array, 'B L D'],
  table: Float[Array, 'V D'],
  targets: Int[Array, 'B L'],
) -> Float[Array, 'B L']:
  """Return the negative log-likelihood of each target, in nats.

  Logits are made block by block of the tokens, and again in the backward pass:
  those of all tokens never exist together.
  """
  narrow = jax.lax.stop_gradient(table).astype(x.dtype)

  def of_block(block):
    x, targets = block
    if not backend.is_cpu():
      return _nll(x, table, narrow, targets)
    found = logits(x, table)
    chosen = jnp.take_along_axis(found, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(found, axis=-1) - chosen

  batch, length = targets.shape
  blocks = -(-length * len(table) // BLOCK)
  if blocks == 1:
    return of_block((x, targets))
  size = -(-length // blocks)

  def split(y):
    padding = ((0, 0), (0, blocks * size - length), *[(0, 0)] * (y.ndim - 2))
    y = jnp.pad(y, padding).reshape(batch, blocks, size, *y.shape[2:])
    return jnp.moveaxis(y, 1, 0)

  if backend.is_cpu():
    of_block = jax.checkpoint(of_block)
  found = jax.lax.map(of_block, (split(x), split(targets)))
  return jnp.moveaxis(found, 0, 1).reshape(batch, -1)[:, :length]
