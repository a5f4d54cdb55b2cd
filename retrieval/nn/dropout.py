# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Dropout from half as many random bits as Flax draws.

On a CPU, random bits dominate the cost of dropout. Here 16 bits decide an
element, and the backward pass keeps one boolean of it.
"""

from collections.abc import Sequence

from flax import linen as nn
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_LEVELS = 1 << 16


def kept_share(rate: float) -> float:
  """Return the share that dropout retains: 1 - rate, to a multiple of 2^-16."""
  return max(1, round((1 - rate) * _LEVELS)) / _LEVELS


def keep_mask(
  key: jax.Array, rate: float, shape: Sequence[int]
) -> Bool[Array, '...']:
  """Draw a mask that is True with probability `kept_share(rate)`.

  The last axis of `shape` should not be sharded.
  """
  limit = round(kept_share(rate) * _LEVELS)
  *front, last = shape
  bits = jax.random.bits(key, (*front, (last + 1) // 2), jnp.uint32)
  halves = [bits & (_LEVELS - 1) < limit, bits >> 16 < limit]
  # Without the barrier the backward pass keeps the bits.
  return lax.optimization_barrier(jnp.concatenate(halves, axis=-1)[..., :last])


class Dropout(nn.Module):
  """flax.linen.Dropout with a `rate` that is a multiple of 2^-16."""

  rate: float

  @nn.compact
  def __call__(
    self, x: Float[Array, '*shape'], train: bool
  ) -> Float[Array, '*shape']:
    """Drop elements in training, with the random stream 'dropout'."""
    if not train or not self.rate:
      return x
    keep = keep_mask(self.make_rng('dropout'), self.rate, x.shape)
    return jnp.where(keep, x / kept_share(self.rate), 0)
