# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Intervals of differences over items and seeds, and Holm's correction.

Items (documents, questions or facts) and seeds are crossed: every seed is measured on
the same items. As in studies of many readers and many cases (Hillis 2007, Statistics
in Medicine 26), the variance of the mean is that of the seeds' means over the number
of seeds plus that of the items' means over the number of items, with Student's t and
the degrees of freedom of Satterthwaite (1946). Both terms hold the variance of single
items in single seeds, so the sum is not too small.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A mean difference with its standard error."""

  mean: float
  error: float
  freedom: float  # degrees of freedom of Student's t
  of_seeds: tuple[float, ...] = ()  # () where nothing was trained

  def interval(self, level: float = 0.95) -> tuple[float, float]:
    """Ends of the interval."""
    half = float(stats.t.ppf((1 + level) / 2, self.freedom)) * self.error
    return self.mean - half, self.mean + half

  def above(self, limit: float) -> float:
    """One-sided p-value: small where the mean is surely above a limit."""
    if not self.error:
      return 0.5 if self.mean == limit else float(self.mean < limit)
    return float(stats.t.sf((self.mean - limit) / self.error, self.freedom))

  def below(self, limit: float) -> float:
    """One-sided p-value: small where the mean is surely below a limit."""
    return 1 - self.above(limit)


def combine(
  mean: float,
  of_items: float,
  of_seeds: Sequence[float] = (),
  freedom: float = math.inf,
) -> Estimate:
  """Join the variance between items and the spread of the seeds.

  Args:
    of_items: variance of the mean, by its items.
    of_seeds: the mean of each seed.
    freedom: degrees of freedom of `of_items`.
  """
  count, between, slack = len(of_seeds), 0.0, of_items**2 / freedom
  if count > 1:
    between = float(np.var(of_seeds, ddof=1)) / count
    slack += between**2 / (count - 1)
  total = of_items + between
  freedom = total**2 / slack if slack else math.inf
  return Estimate(mean, math.sqrt(total), freedom, tuple(map(float, of_seeds)))


def of_values(
  values: np.ndarray, weights: np.ndarray | None = None
) -> Estimate:
  """Estimate the sum of values over the sum of weights.

  Args:
    values: [seeds, items], or [items] where nothing was trained.
    weights: [items] above 0; None gives each item the weight 1.
  """
  values = np.asarray(values, np.float64)
  number = values.shape[-1]
  weights = np.ones(number) if weights is None else np.asarray(weights, float)
  each = values.sum(-1) / weights.sum()
  mean = float(each.mean())
  items = values if values.ndim == 1 else values.mean(0)
  rest = (items - mean * weights) / weights.sum()
  of_items = float((rest**2).sum()) * number / (number - 1)
  seeds = each if values.ndim == 2 else ()
  return combine(mean, of_items, seeds, number - 1)


def holm(p: Sequence[float]) -> np.ndarray:
  """Adjust p-values of one family (Holm 1979)."""
  p = np.asarray(p, float)
  order = np.argsort(p, kind='stable')
  steps = p[order] * np.arange(len(p), 0, -1)
  adjusted = np.empty_like(p)
  adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
  return adjusted
