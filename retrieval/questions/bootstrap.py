# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals of means, by the bootstrap (Efron 1979)."""

import dataclasses
import math

from jaxtyping import Float
import numpy as np

LEAST = 10  # items of an interval; of fewer it would mean nothing
_SAMPLES = 2000
_AT_ONCE = 1 << 20  # drawn items in memory


@dataclasses.dataclass(frozen=True)
class Interval:
  """A mean with its confidence interval, from `low` to `high`; NaN for none."""

  mean: float
  low: float
  high: float


def bootstrap(
  values: Float[np.ndarray, ' n'],
  weights: Float[np.ndarray, ' n'] | None = None,
) -> Interval:
  """Return the sum of values over the sum of weights, with a 95 % percentile interval.

  Fewer than `LEAST` items have no interval.

  A paired bootstrap of two systems takes the differences item by item as values.

  Args:
    values: [n] value of each item.
    weights: [n] weight of each item, above 0; None gives each item the weight 1.

  Raises:
    ValueError: without items, for other than n weights or for weights not above 0.
  """
  weights = np.ones(len(values)) if weights is None else weights
  if not len(values) or len(weights) != len(values) or not (weights > 0).all():
    raise ValueError(
      f'{len(values)} values and {len(weights)} weights: expected as many of '
      'each, at least one, and weights above 0.'
    )
  mean = float(values.sum() / weights.sum())
  if len(values) < LEAST:
    return Interval(mean, math.nan, math.nan)
  from scipy import stats  # a third of a command's start-up, read by few

  interval = stats.bootstrap(
    (values, weights),
    lambda v, w, axis: v.sum(axis) / w.sum(axis),
    paired=True,
    vectorized=True,
    method='percentile',
    n_resamples=_SAMPLES,
    batch=max(1, _AT_ONCE // len(values)),
    rng=np.random.default_rng(0),
  ).confidence_interval
  return Interval(mean, float(interval.low), float(interval.high))
