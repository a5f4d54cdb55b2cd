# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Dropout from half as many random bits as Flax draws.

On a CPU the random bits are what dropout costs, and what a backward pass keeps of
them is memory. Here 16 bits decide an element, and a boolean of it is kept.
"""

from collections.abc import Sequence

from flax import linen as nn
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array
from jaxtyping import Bool
from jaxtyping import Float

_LEVELS = 1 << 16


def kept_share(rate: float) -> float:
  """The probability to be kept: 1 - rate, to a multiple of 2^-16.

  Raises:
    ValueError: for a rate that keeps nothing, or is no probability.
  """
  if not 0 <= rate < 1 - 0.5 / _LEVELS:
    raise ValueError(f'Dropout rate {rate}: expected at least 0, less than 1.')
  return round((1 - rate) * _LEVELS) / _LEVELS


def keep_mask(
  key: jax.Array, rate: float, shape: Sequence[int]
) -> Bool[Array, '...']:
  """Draws what is kept.

  Args:
    key: random key.
    rate: probability of an element to be dropped.
    shape: of the mask; its last axis should not be sharded.

  Returns:
    Bool of that shape, True with probability kept_share(rate).
  """
  limit = round(kept_share(rate) * _LEVELS)
  *front, last = shape
  bits = jax.random.bits(key, (*front, (last + 1) // 2), jnp.uint32)
  halves = [bits & (_LEVELS - 1) < limit, bits >> 16 < limit]
  # The barrier: else what is kept for the backward pass is bits.
  return lax.optimization_barrier(jnp.concatenate(halves, axis=-1)[..., :last])


class Dropout(nn.Module):
  """Zeroes elements at random and scales up the others; as flax.linen.Dropout.

  Attributes:
    rate: probability of an element to be zeroed, to a multiple of 2^-16.
  """

  rate: float

  @nn.compact
  def __call__(
    self, x: Float[Array, '*shape'], train: bool
  ) -> Float[Array, '*shape']:
    """Acts in training alone, with the random stream 'dropout'."""
    if not train or not self.rate:
      return x
    keep = keep_mask(self.make_rng('dropout'), self.rate, x.shape)
    return jnp.where(keep, x / kept_share(self.rate), 0)
