# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Each objective against slow loops, its analytic gradient and its edges."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.nn import objectives

B, K, L = 5, 4, 3
PREDICTING = ['marginal_token', 'marginal_seq']
NAMES = [*PREDICTING, 'contrastive']


def _batch(seed=0):
  """Row 2 has no target, row 3 misses candidates, row 4 has no positive."""
  rng = np.random.default_rng(seed)
  scores = rng.standard_normal((B, K), np.float32)
  gold = -rng.exponential(1.0, (B, K, L)).astype(np.float32)
  targets = np.ones((B, L), bool)
  targets[1, 2:], targets[2] = False, False
  candidates = np.ones((B, K), bool)
  candidates[3, 1:3] = False
  positives = np.zeros((B, K), bool)
  positives[0, 0] = positives[1, 1] = positives[1, 3] = True
  positives[2, 2] = positives[3, 0] = positives[3, 2] = True
  masks = objectives.Masks(*map(jnp.asarray, (targets, candidates, positives)))
  return jnp.asarray(scores), jnp.asarray(gold), masks


def _objective(name):
  function = getattr(objectives, name)
  if name == 'contrastive':
    return lambda scores, gold, masks: function(scores, masks).value
  return lambda *arguments: function(*arguments).value


@functools.cache
def _value_and_grads(name):
  return jax.jit(jax.value_and_grad(_objective(name), (0, 1)))


def _slow_row(name, s, g, positives):
  """Loss of one row; `s` [k], `g` [k, l] hold what is valid only."""
  p = np.exp(s - s.max())
  p /= p.sum()
  if name == 'marginal_token':
    return -sum(np.log((p * np.exp(g[:, t])).sum()) for t in range(g.shape[1]))
  if name == 'marginal_seq':
    return -np.log(sum(p[k] * np.exp(g[k].sum()) for k in range(len(p))))
  return -np.log(p[positives].sum())


def _slow(name, scores, gold, masks):
  """Mean loss in float64, by loops."""
  targets, candidates, positives = (
    np.asarray(x) for x in (masks.targets, masks.candidates, masks.positives)
  )
  total, number = 0.0, 0
  for b in range(len(scores)):
    keep = candidates[b]
    s = np.asarray(scores[b], np.float64)[keep]
    g = np.asarray(gold[b], np.float64)[keep][:, targets[b]]
    found = positives[b][keep]
    terms = int(found.any()) if name == 'contrastive' else g.shape[1]
    if terms:
      total += _slow_row(name, s, g, found)
      number += terms if name == 'marginal_token' else 1
  return total / number


@pytest.mark.parametrize('name', NAMES)
def test_equals_slow_reference(name):
  scores, gold, masks = _batch()
  objective = _objective(name)
  expected = _slow(name, scores, gold, masks)
  for found in (
    objective(scores, gold, masks),
    _value_and_grads(name)(scores, gold, masks)[0],
  ):
    assert float(found) == pytest.approx(expected, rel=1e-5)
    assert found.dtype == jnp.float32 and found.shape == ()


@pytest.mark.parametrize('name', NAMES)
def test_gradient_equals_finite_differences_of_the_reference(name):
  scores, gold, masks = _batch()
  found = _value_and_grads(name)(scores, gold, masks)[1][0]
  scores = np.asarray(scores, np.float64)
  expected = np.zeros((B, K))
  for b, k in np.ndindex(B, K):
    step = np.zeros((B, K))
    step[b, k] = 1e-5
    up = _slow(name, scores + step, gold, masks)
    expected[b, k] = (up - _slow(name, scores - step, gold, masks)) / 2e-5
  np.testing.assert_allclose(found, expected, atol=2e-6)
  np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-6)


@pytest.mark.parametrize('name', PREDICTING)
def test_gold_log_probs_that_count_get_gradients(name):
  scores, gold, masks = _batch()
  by_gold = np.asarray(_value_and_grads(name)(scores, gold, masks)[1][1])
  assert (by_gold[~np.asarray(masks.candidates)] == 0).all()
  assert (by_gold.swapaxes(1, 2)[~np.asarray(masks.targets)] == 0).all()
  assert (by_gold[0] < 0).all()


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('junk', [np.nan, -np.inf])
def test_what_does_not_count_is_not_read(name, junk):
  scores, gold, masks = _batch()
  invalid = ~masks.candidates
  dirty_scores = jnp.where(invalid, junk, scores)
  dirty_gold = jnp.where(
    invalid[:, :, None] | ~masks.targets[:, None], junk, gold
  )
  grads = _value_and_grads(name)
  clean = grads(scores, gold, masks)
  dirty = grads(dirty_scores, dirty_gold, masks)
  for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
  'name, empty',
  [
    *((name, 'targets') for name in PREDICTING),
    *((name, 'candidates') for name in NAMES),
    ('contrastive', 'positives'),
  ],
)
def test_nothing_to_learn_is_exactly_zero(name, empty):
  scores, gold, masks = _batch()
  none = jnp.zeros_like(getattr(masks, empty))
  masks = masks.replace(**{empty: none})
  loss, grads = _value_and_grads(name)(scores, gold, masks)
  assert float(loss) == 0
  assert all((np.asarray(g) == 0).all() for g in grads)


def test_scores_in_half_precision_are_lifted():
  scores, gold, masks = _batch()
  half = scores.astype(jnp.bfloat16)
  for name in NAMES:
    loss = _objective(name)(half, gold, masks)
    assert loss.dtype == jnp.float32
    exact = _objective(name)(half.astype(jnp.float32), gold, masks)
    assert float(loss) == float(exact)


@pytest.mark.parametrize('name', NAMES)
def test_one_candidate_teaches_nothing(name):
  scores, gold, masks = _batch()
  with pytest.raises(ValueError, match='K=1'):
    _objective(name)(scores[:, :1], gold[:, :1], masks)
