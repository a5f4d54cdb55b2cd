# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The guarantee of thresholds by simulation, and probabilities."""

import dataclasses

import numpy as np
import pytest

from retrieval.questions import abstention


def _draw(rng, n, chance):
  """Confidences, most of them high or low, right with a chance of them."""
  confidences = rng.beta(0.7, 0.7, n)
  return confidences, rng.random(n) < chance(confidences)


def _lists(*arrays):
  return [x.tolist() for x in arrays]


def _made(confidences, right):
  return abstention.Calibration(
    sets=('custom:dev',),
    made_of={},
    confidences=confidences,
    right=right,
    scale=(1.0, 0.0),
  )


@pytest.mark.parametrize(
  ('chance', 'answers'),
  [
    (lambda c: c, 0.25),
    (lambda c: c**0.5, 0.45),
    # Confidence tells nothing, and every threshold breaks the promise narrowly.
    (lambda c: 0.799 + 0 * c, 0.0),
  ],
)
def test_the_risk_is_exceeded_in_one_of_twenty_calibrations_at_most(
  chance, answers
):
  rng = np.random.default_rng(0)
  many, _ = _draw(rng, 50_000, chance)
  wrong, runs, broken, answered = 1 - chance(many), 300, 0, []
  for _ in range(runs):
    threshold = _made(*_lists(*_draw(rng, 300, chance))).threshold(0.2)
    given = many >= threshold
    answered.append(given.mean())
    broken += given.any() and wrong[given].mean() > 0.2
  assert broken <= 0.05 * runs + 3 * (0.05 * 0.95 * runs) ** 0.5
  assert np.mean(answered) > answers


def test_few_or_wrong_answers_prove_nothing():
  rng = np.random.default_rng(0)
  confidences, right = rng.random(200).tolist(), [True] * 200
  assert _made(confidences, right).threshold(0.2) == min(confidences)
  assert _made(confidences, [False] * 200).threshold(0.2) == np.inf
  assert _made(confidences[:40], right[:40]).threshold(0.2) == np.inf
  assert _made(confidences, right).threshold(0.0) == np.inf
  # As sure as a wrong one is not surer.
  assert (
    _made([0.5] * 200, [True] * 100 + [False] * 100).threshold(0.2) == np.inf
  )
  told = [_made(confidences, x).promise(0.2) for x in (right, [False] * 200)]
  assert all('20%' in x and '200 ' in x and '(dev)' in x for x in told)
  assert f'{min(confidences):.3f}' in told[0] and 'No answer' in told[1]
  with pytest.raises(ValueError, match='risk'):
    _made(confidences, right).threshold(1.5)


def test_a_probability_in_words():
  made = _made([0.5], [True])
  made = dataclasses.replace(
    made, sets=('custom_regex:curatedtrec_judged', 'x')
  )
  assert made.in_words(0.7) == (
    'About 70 of 100 such answers were right on the calibration questions '
    '(CuratedTREC, x).'
  )
  assert 'About 99 of 100 ' in made.in_words(0.9999)


def test_a_larger_risk_answers_more_in_any_order():
  rng = np.random.default_rng(0)
  confidences, right = _draw(rng, 800, lambda c: c)
  found = []
  for order in (np.arange(800), rng.permutation(800)):
    made = _made(*_lists(confidences[order], right[order]))
    found.append([made.threshold(x) for x in (0.1, 0.2, 0.3, 0.4)])
  assert found[0] == found[1] == sorted(found[0], reverse=True)
  assert len(set(found[0])) == 4


def test_probabilities_are_those_of_being_right():
  rng = np.random.default_rng(0)
  chance = lambda c: c**2 / (c**2 + 3 * (1 - c) ** 2)  # noqa: E731
  confidences, right = _draw(rng, 20_000, chance)
  lists = _lists(confidences, right)
  made = abstention.calibrate(*lists, ['custom:dev'], {})
  for low in np.arange(0.05, 0.95, 0.1):
    there = (confidences >= low) & (confidences < low + 0.1)
    found = np.mean([*map(made.probability, confidences[there][:200].tolist())])
    assert found == pytest.approx(right[there].mean(), abs=0.03)
  one = abstention.calibrate([0.9], [True], ['custom:dev'], {})
  assert 0 < one.probability(0.0) <= one.probability(1.0) < 1
