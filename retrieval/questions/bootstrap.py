# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals of means, by the bootstrap (Efron 1979)."""

import dataclasses

from jaxtyping import Float
import numpy as np


@dataclasses.dataclass(frozen=True)
class Interval:
  """A mean and how far chance may have moved it.

  Attributes:
    mean: over all items.
    low: lower end of the confidence interval.
    high: its upper end.
  """

  mean: float
  low: float
  high: float


def bootstrap(
  values: Float[np.ndarray, ' n'],
  weights: Float[np.ndarray, ' n'] | None = None,
  *,
  num_samples: int = 2000,
  level: float = 0.95,
  seed: int = 0,
) -> Interval:
  """Sum of values over sum of weights, items drawn again with replacement.

  For two systems measured on the same items, the values are the differences item
  by item: a paired bootstrap.

  Args:
    values: [n] of each item.
    weights: [n] above 0; None counts every item once, which gives the mean.
    num_samples: times that n items are drawn.
    level: of the confidence interval, by the percentiles of the draws.
    seed: of the draws.

  Returns:
    The mean and its interval.

  Raises:
    ValueError: without items, for other than n weights or for weights not above 0.
  """
  weights = np.ones(len(values)) if weights is None else weights
  if not len(values) or len(weights) != len(values) or not (weights > 0).all():
    raise ValueError(
      f'{len(values)} values and {len(weights)} weights: expected as many of '
      'each, at least one, and weights above 0.'
    )
  rng, n = np.random.default_rng(seed), len(values)
  means = np.empty(num_samples)
  for i in range(num_samples):
    chosen = rng.integers(0, n, n)
    means[i] = values[chosen].sum() / weights[chosen].sum()
  low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
  return Interval(float(values.sum() / weights.sum()), float(low), float(high))
