# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Arrays that the kernels of `fused_attention` share, for TPUs and for GPUs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy.typing as npt

HIDDEN = -1e30  # logit of a hidden key


class Arrays(NamedTuple):
  """Arguments of attention that have gradients."""

  queries: jax.Array  # [H, N, Q, K]
  keys: jax.Array  # [H, M, S, K]
  values: jax.Array  # [H, M, S, K]
  position_queries: jax.Array | None = None  # [H, N, Q, K]
  relative_keys: jax.Array | None = None  # [H, T, K]

  @property
  def num_bytes(self) -> int:
    """Bytes of all."""
    return sum(x.size * x.dtype.itemsize for x in self if x is not None)


class Segments(NamedTuple):
  """Queries see keys of their segment."""

  queries: jax.Array  # [N, 1, Q]
  keys: jax.Array  # [M, 1, S]


def precision(dtype: npt.DTypeLike) -> jax.lax.Precision | None:
  """Return the precision of a product: full, except in bfloat16."""
  return None if dtype == jnp.bfloat16 else jax.lax.Precision.HIGHEST


def dot(a: jax.Array, b: jax.Array, axis: int, other: int) -> jax.Array:
  """Multiply over axes of two matrices, in b's dtype with float32 sums."""
  return jax.lax.dot_general(
    a.astype(b.dtype),
    b,
    (((axis,), (other,)), ((), ())),
    precision=precision(b.dtype),
    preferred_element_type=jnp.float32,
  )


def einsum(expression: str, *arrays: jax.Array) -> jax.Array:
  """Multiply arrays of a dtype with float32 sums."""
  wide = {'preferred_element_type': jnp.float32}
  return jnp.einsum(
    expression, *arrays, precision=precision(arrays[-1].dtype), **wide
  )


def like(
  x: jax.Array, dtype: npt.DTypeLike | None = None
) -> jax.ShapeDtypeStruct:
  """Return the shape of an array, with its dtype or another."""
  return jax.ShapeDtypeStruct(x.shape, dtype or x.dtype)


def up(size: int, multiple: int) -> int:
  """Return the next multiple that is no less than `size`."""
  return -(-size // multiple) * multiple
