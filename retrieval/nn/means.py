# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Means as totals and counts, which add up over parts of a batch.

A loss may add a mean over tokens to a mean over rows. Microbatches and validation
batches have different numbers of both: neither their losses nor their gradients can
be averaged by one weight. Totals and counts can be added.
"""

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp


@struct.dataclass
class Mean:
  """A mean, or a sum of means, each with its count.

  `a + b` adds two means of the same batch; `jax.tree.map(jnp.add, a, b)` pools the
  same mean of two batches.
  """

  totals: tuple[Any, ...]  # Sums in the unit of the mean; each [] float32.
  counts: tuple[Any, ...]  # Tokens or rows in each total; [] float32.

  @property
  def value(self) -> Any:
    """The sum of totals / counts, [] float32; 0 without items."""
    pairs = zip(self.totals, self.counts, strict=True)
    return sum(total / count.clip(1.0) for total, count in pairs)

  def __add__(self, other: 'Mean') -> 'Mean':
    return Mean(self.totals + other.totals, self.counts + other.counts)

  def __rmul__(self, factor: float) -> 'Mean':
    return Mean(tuple(factor * x for x in self.totals), self.counts)


def of(values: jax.Array, mask: jax.Array) -> Mean:
  """Mean of the values at the True entries of a mask; values broadcast to it."""
  values = jnp.where(mask, values, 0.0)
  dtype = jnp.promote_types(values.dtype, jnp.float32)
  return Mean((values.sum(dtype=dtype),), (mask.sum(dtype=dtype),))


def values(tree: Any) -> Any:
  """Replace each `Mean` of a tree by its value."""
  is_mean = lambda x: isinstance(x, Mean)  # noqa: E731
  return jax.tree.map(lambda x: x.value, tree, is_leaf=is_mean)
