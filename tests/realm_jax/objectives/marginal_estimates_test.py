# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Estimates of the marginal: equal to the exact one over all, consistent over many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.objectives import marginal_estimates as estimates

N, T = 30, 2


@pytest.fixture(name='example')
def _example():
  rng = np.random.default_rng(0)
  return rng.normal(0, 2, N), rng.normal(-3, 2, (N, T))


def _slow(scores, gold):
  total = jnp.exp(scores).sum()
  return -sum(
    jnp.log((jnp.exp(scores) / total * jnp.exp(gold[:, t])).sum())
    for t in range(T)
  )


def _exact(example):
  everything = estimates.Candidates(np.arange(N), np.zeros(N))
  return estimates.estimate(*example, everything)


def test_exact_loss_and_gradient_equal_slow_ones(example):
  found_loss, found = _exact(example)
  with jax.enable_x64(True):
    loss, gradient = jax.value_and_grad(_slow)(*map(jnp.asarray, example))
  np.testing.assert_allclose(found_loss, loss, rtol=1e-12)
  np.testing.assert_allclose(found, gradient, atol=1e-12)


@pytest.mark.parametrize('name', ['top', 'uniform', 'mixed'])
def test_all_documents_give_the_exact_values(example, name):
  scores, gold = example
  rng = np.random.default_rng(1)
  chosen = estimates.ESTIMATORS[name](scores, N - 1, rng)
  assert sorted(chosen.ids.tolist()) == list(range(N))
  loss, gradient = estimates.estimate(scores, gold, chosen)
  exact = _exact(example)
  np.testing.assert_allclose(loss, exact[0])
  np.testing.assert_allclose(gradient, exact[1], atol=1e-12)
  best = np.argsort(-scores[1:])[:3] + 1
  assert estimates.top(scores, 3, rng).ids.tolist() == [0, *best]


@pytest.mark.parametrize('name', ['uniform', 'prior', 'mixed'])
def test_log_weights_sum_to_the_normalizer(example, name):
  scores, _ = example
  rng = np.random.default_rng(2)
  choose = estimates.ESTIMATORS[name]
  totals = []
  for _ in range(4000):
    chosen = choose(scores, 6, rng)
    assert len(chosen.ids) == 7 and chosen.ids[0] == 0
    weights = chosen.log_weights.copy()
    if name == 'uniform':  # its constant weight cancels out of the softmax
      weights[1:] += np.log((N - 1) / 6)
    totals.append(np.exp(scores[chosen.ids] + weights).sum())
  exact = np.exp(scores).sum()
  error = np.std(totals) / np.sqrt(len(totals))
  assert abs(np.mean(totals) - exact) < 4 * error + 1e-9 * exact
