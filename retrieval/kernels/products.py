# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Matrix products and attention, one function for each kind of backend.

Accelerators get what XLA makes of plain operations: operands in the compute dtype,
accumulation in float32, both forward and backward. CPUs get `products_cpu`. Gradients
are in reverse mode.

Dimension key: X any leading axes, D in, F out, M and N rows and heads in any
order, Q queries, S keys, K head width.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from retrieval.kernels import backend, products_cpu


def linear(
  x: Float[Array, '*X D'], matrix: Float[Array, 'D F']
) -> Float[Array, '*X F']:
  """Return x @ matrix."""
  return products_cpu.linear(x, matrix) if backend.is_cpu() else x @ matrix


def linears(
  x: Float[Array, '*X D'], matrices: Sequence[Float[Array, 'D F']]
) -> list[Float[Array, '*X F']]:
  """Return x @ matrix for each matrix.

  On TPUs the matrices are joined to one, since their compiler takes long for each
  product.
  """
  if len(matrices) == 1 or not backend.is_tpu():
    return [linear(x, matrix) for matrix in matrices]
  joined = jnp.einsum('...D,DPF->...PF', x, jnp.stack(matrices, axis=1))
  return [joined[..., p, :] for p in range(len(matrices))]


def dot_general(x, kernel, dimension_numbers, precision=None):
  """Return `linear` as the dot_general of a flax.linen.Dense."""
  del dimension_numbers, precision  # Dense contracts the last axis of x.
  return linear(x, kernel)


def scores(
  queries: Float[Array, '*X Q K'], keys: Float[Array, '*X S K']
) -> Float[Array, '*X Q S']:
  """Return queries @ keys^T; on accelerators not rounded, as `wide_scores`."""
  if backend.is_cpu():
    return products_cpu.scores(queries, keys)
  return wide_scores(queries, keys)


@jax.custom_vjp
def wide_scores(
  queries: Float[Array, '*X Q K'], keys: Float[Array, '*X S K']
) -> Float[Array, '*X Q S']:
  """Return queries @ keys^T in float32 or wider.

  The products of the backward pass take their cotangent in the operands' dtype,
  so that none of them has a float32 operand in a bfloat16 program.
  """
  wide = jnp.promote_types(queries.dtype, jnp.float32)
  return jnp.einsum(
    '...QK,...SK->...QS', queries, keys, preferred_element_type=wide
  )


def _wide_scores_forward(queries, keys):
  return wide_scores(queries, keys), (queries, keys)


def _wide_scores_backward(residuals, g):
  queries, keys = residuals
  g = g.astype(keys.dtype)
  return g @ keys, jnp.einsum('...QS,...QK->...SK', g, queries)


wide_scores.defvjp(_wide_scores_forward, _wide_scores_backward)


def table_logits(
  x: Float[Array, '*X D'], table: Float[Array, 'V D']
) -> Float[Array, '*X V']:
  """Return x @ table^T in float32 or wider, by backend as `scores`."""
  if backend.is_cpu():
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return jnp.einsum('...D,VD->...V', x, table, preferred_element_type=wide)
  logits = wide_scores(x.reshape(-1, x.shape[-1]), table)
  return logits.reshape(*x.shape[:-1], -1)


def weights(
  queries: Float[Array, 'M N Q K'],
  keys: Float[Array, 'M N S K'],
  bias: Float[Array, 'M N Q S1'] | None = None,
  mask: Bool[Array, '#M #N #Q S'] | None = None,
) -> Float[Array, 'M N Q S']:
  """Return the weights of the values in `attend`.

  The softmax is in float32 or wider, the weights have the queries' dtype.
  """
  shares = products_cpu.softmax(wide_scores(queries, keys), bias, mask)
  return shares.astype(queries.dtype)


def attend(
  queries: Float[Array, 'M N Q K'],
  keys: Float[Array, 'M N S K'],
  values: Float[Array, 'M N S K'],
  bias: Float[Array, 'M N Q S1'] | None = None,
  mask: Bool[Array, '#M #N #Q S'] | None = None,
  keep: Bool[Array, 'M N Q S'] | None = None,
) -> Float[Array, 'M N Q K']:
  """Return softmax(queries keys^T + bias) values.

  Args:
    queries: [M, N, Q, K]. Already scaled.
    keys, values: [M, N, S, K].
    bias: [M, N, Q, S1], S a multiple of S1: the keys are copies of S1
      positions, which share the bias.
    mask: broadcasts to [M, N, Q, S]. False hides a key. A row without a key
      returns the mean value or zero; its incoming gradient must be zero.
    keep: [M, N, Q, S]. False drops a weight after the softmax. The other
      weights are not scaled up; scale the values instead.
  """
  if backend.is_cpu():
    return products_cpu.attend(queries, keys, values, bias, mask, keep)
  of_keys = mask is None or mask.shape == (len(keys), 1, 1, keys.shape[2])
  if bias is None and keep is None and of_keys:
    fused = _fused(queries, keys, values, mask)
    if fused is not None:
      return fused
  shares = weights(queries, keys, bias, mask)
  return products_cpu.dropped(shares, keep) @ values


def _fused(queries, keys, values, mask):
  """Attend by a kernel; return None if no kernel takes the arguments."""
  from retrieval.kernels import fused_attention  # for accelerators only

  by_heads = [x.swapaxes(0, 1) for x in (queries, keys, values)]
  shapes = [x.shape for x in by_heads[:2]]
  rows, length = len(keys), keys.shape[2]
  if not fused_attention.suits(*shapes, length, queries.dtype):
    return None
  if mask is None:
    mask = jnp.ones((rows, 1, 1, length), bool)
  mixed = fused_attention.attend(
    *by_heads,
    jnp.ones((rows, queries.shape[2]), jnp.int32),
    mask[:, 0, 0].astype(jnp.int32),
  )
  return mixed.swapaxes(0, 1)
