# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""READ of algorithm 1: logits of the next tokens, and their loss without all logits.

Dimension key: B batch, L tokens, D model width, V vocabulary.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from retrieval.kernels import backend, products
from retrieval.nn import partitioning

# Logits of one row that exist at a time: 128 MiB in float32.
BLOCK = 2**25


def logits(
  x: Float[Array, 'B L D'], table: Float[Array, 'V D']
) -> Float[Array, 'B L V']:
  """Return x @ table^T, products of x's dtype accumulated in float32 or wider."""
  y = products.table_logits(x, table.astype(x.dtype))
  return partitioning.constrain(y, 'batch', 'length', 'vocab')


def _is_target(scores, targets):
  return jnp.arange(scores.shape[-1]) == targets[..., None]


def _sums(x, table, targets):
  """Return the logarithm of the sum of exponentials, and the target's logit."""
  scores = logits(x, table)
  most = scores.max(axis=-1)
  zero = jnp.zeros((), scores.dtype)
  total, chosen = jax.lax.reduce(  # one pass over the logits
    (
      jnp.exp(scores - most[..., None]),
      jnp.where(_is_target(scores, targets), scores, zero),
    ),
    (zero, zero),
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    (scores.ndim - 1,),
  )
  return most + jnp.log(total), chosen


@jax.custom_vjp
def _nll(x, table, narrow, targets):
  """Return the nats of a block: [B, L].

  The backward pass makes the logits again; it keeps the logarithms of the sums. The
  gradient is of `table`; `narrow` is the table in x's dtype.
  """
  return _nll_forward(x, table, narrow, targets)[0]


def _nll_forward(x, table, narrow, targets):
  total, chosen = _sums(x, narrow, targets)
  wide = jnp.zeros((), table.dtype)
  return total - chosen, (x, narrow, targets, total, wide)


def _nll_backward(residuals, g):
  x, narrow, targets, total, wide = residuals
  scores = logits(x, narrow)
  weights = jnp.exp(scores - total[..., None]) - _is_target(scores, targets)
  d = (weights * g[..., None]).astype(x.dtype)
  product = functools.partial(jnp.einsum, preferred_element_type=g.dtype)
  d_x = product('BLV,VD->BLD', d, narrow).astype(x.dtype)
  d_table = product('BLV,BLD->VD', d, x).astype(wide.dtype)
  return d_x, d_table, None, None


_nll.defvjp(_nll_forward, _nll_backward)


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
    scores = logits(x, table)
    chosen = jnp.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - chosen

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
  nats = jax.lax.map(of_block, (split(x), split(targets)))
  return jnp.moveaxis(nats, 0, 1).reshape(batch, -1)[:, :length]
