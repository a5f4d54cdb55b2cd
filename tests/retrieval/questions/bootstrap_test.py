# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np

from retrieval.questions import bootstrap


def test_interval_is_that_of_the_normal_law():
  values = (np.arange(2000) % 4 == 0).astype(np.float64)
  found = bootstrap.bootstrap(values)
  error = 1.96 * math.sqrt(0.25 * 0.75 / 2000)
  assert found.mean == 0.25
  np.testing.assert_allclose(found.low, 0.25 - error, atol=2e-3)
  np.testing.assert_allclose(found.high, 0.25 + error, atol=2e-3)
  assert bootstrap.bootstrap(values) == found


def test_fewer_than_ten_items_have_no_interval():
  values = np.arange(10.0)
  for n in (1, 3, 9):
    found = bootstrap.bootstrap(values[:n])
    assert found.mean == values[:n].mean()
    assert math.isnan(found.low) and math.isnan(found.high)
  assert bootstrap.bootstrap(values).low < 4.5


def test_weights_give_a_ratio_of_sums(monkeypatch):
  monkeypatch.setattr(bootstrap, 'LEAST', 2)
  values, weights = np.array([1.0, 2.0, 6.0]), np.array([1.0, 1.0, 4.0])
  found = bootstrap.bootstrap(values, weights)
  assert found.mean == 9 / 6
  # Every draw of one item three times over is a ratio of that item.
  assert found.low == 1.0 and found.high == 2.0
  same = bootstrap.bootstrap(3 * weights, weights)
  assert (same.mean, same.low, same.high) == (3.0, 3.0, 3.0)


def test_draws_are_those_of_the_seed(monkeypatch):
  monkeypatch.setattr(bootstrap, '_SAMPLES', 50)
  rng = np.random.default_rng(1)
  values, weights = rng.normal(size=30), rng.integers(1, 500, 30) * 1.0
  draws = np.random.default_rng(0)
  means = []
  for _ in range(50):
    chosen = draws.integers(0, 30, 30)
    means.append(values[chosen].sum() / weights[chosen].sum())
  found = bootstrap.bootstrap(values, weights)
  want = np.quantile(means, [0.025, 0.975])
  np.testing.assert_allclose([found.low, found.high], want, rtol=1e-12)
