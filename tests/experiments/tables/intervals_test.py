# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Coverage of the two-level interval, and Holm's correction."""

import numpy as np
import pytest
from scipy import stats

from experiments.tables import intervals


@pytest.mark.parametrize('between', [0.0, 0.5, 2.0])
def test_95_of_100_intervals_hold_the_mean(between):
  """Five seeds of 194 documents of very different lengths; true difference 1."""
  rng, documents, held = np.random.default_rng(0), 194, 0
  for _ in range(1000):
    size = rng.lognormal(0, 1, documents)
    of_seeds = between * rng.normal(size=(5, 1)) / np.sqrt(documents)
    own = rng.normal(size=documents) + 0.5 * rng.normal(size=(5, documents))
    values = size * (1 + of_seeds + own)
    low, high = intervals.of_values(values, size).interval()
    held += low <= 1 <= high
  assert 930 <= held <= 975


def test_items_alone_give_the_t_test():
  values = np.random.default_rng(1).normal(0.3, 1, 40)
  found, want = intervals.of_values(values), stats.ttest_1samp(values, 0)
  assert found.of_seeds == ()
  assert 2 * found.above(0) == pytest.approx(want.pvalue)
  assert found.above(0) + found.below(0) == pytest.approx(1)
  ends = want.confidence_interval()
  assert found.interval() == pytest.approx((ends.low, ends.high))


def test_both_variances_add_up():
  # Means of seeds 1, 3, 5: variance 4 / 3; degrees of freedom of both by hand.
  found = intervals.combine(3.0, 2 / 3, (1.0, 3.0, 5.0), 10)
  assert found.error == pytest.approx(2**0.5)
  assert found.freedom == pytest.approx(4 / (16 / 9 / 2 + 4 / 9 / 10))
  same = np.tile(np.arange(4.0), (3, 1))  # no seed differs
  alone = intervals.of_values(same[0])
  assert intervals.of_values(same).error == pytest.approx(alone.error)


def test_holm_by_hand():
  # Ordered .005, .01, .03, .04: times 4, 3, 2, 1, and never less than before.
  found = intervals.holm([0.01, 0.04, 0.03, 0.005])
  assert found == pytest.approx([0.03, 0.06, 0.06, 0.02])
  assert intervals.holm([0.9, 0.8]) == pytest.approx([1, 1])
