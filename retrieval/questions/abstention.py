# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""When to answer and when to be silent, learnt from questions with known answers.

A question is answered if the confidence of its best answer reaches a threshold. The
risk is the share of wrong answers among the questions answered, the coverage the share
answered (Kamath et al. 2020). Thresholds come from learn-then-test (Angelopoulos et
al. 2021), probabilities from logits with a temperature and a bias (Platt 1999).
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
import re
from typing import Any

import numpy as np

from retrieval import settings
from retrieval.store import manifests

FILE = 'calibration.json'
LEVEL = 0.95  # of the guarantee
_TESTS = 40
_TITLES = {
  'nq_open': 'Natural Questions',
  'webquestions': 'WebQuestions',
  'curatedtrec': 'CuratedTREC',
  'triviaqa': 'TriviaQA',
  'squad_open': 'SQuAD',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
  """Confidences of the best answers to questions, and their correctness."""

  sets: Sequence[str]  # question sets
  # reader, blocks and settings that gave the answers
  made_of: Mapping[str, Any]
  confidences: Sequence[float]  # from 0 to 1
  right: Sequence[bool]
  # inverse temperature and bias of the confidences' logits
  scale: Sequence[float]

  def threshold(self, risk: float) -> float:
    """Return the least confidence to answer with; infinite where no test allows any.

    With probability `LEVEL` over the questions here, at most `risk` of the answers
    to further questions of their distribution are wrong, if surer answers are
    not wrong more often. The k surest answers are tested for growing k, up to the first
    test that fails, so that one level serves all tests. The answers that are surer than
    the next one are a sample of all answers so sure: their wrong ones are binomial.
    """
    from scipy import stats  # a third of a command's start-up, read by few

    settings.check_value('risk', risk, settings.Rate)
    order = np.argsort(-np.asarray(self.confidences), kind='stable')
    confidences = np.asarray(self.confidences)[order]
    wrong = np.cumsum(~np.asarray(self.right)[order])
    # A third of these answers proves the risk only if all of them are right.
    least = 3 * np.log(1 - LEVEL) / np.log1p(-risk) if risk else np.inf
    threshold, following = np.inf, np.append(confidences[1:], -np.inf)
    if least > len(order):
      return threshold
    for k in np.linspace(np.ceil(least), len(order), _TESTS).astype(int):
      count = int((confidences > following[k - 1]).sum())
      if count < least:  # the next ones are as sure
        continue
      if not stats.binom.cdf(wrong[count - 1], count, risk) <= 1 - LEVEL:
        break
      threshold = float(confidences[count - 1])
    return threshold

  def promise(self, risk: float) -> str:
    """Return a sentence that tells the guarantee of `threshold`, and where it holds."""
    least = self.threshold(risk)
    answers = f'Answers have a share of {least:.3f} or more'
    return (
      f'{answers if least < np.inf else "No answer"}. At most {risk:.0%} of '
      f'the answers contain no right one, with {LEVEL:.0%} confidence, for '
      f'questions like the {len(self.right):,} calibrated on '
      f'({self.titles()}).'
    )

  def titles(self) -> str:
    """Return the titles of the question sets."""
    names = [re.sub('^custom(_regex)?:', '', name) for name in self.sets]
    return ', '.join(
      next((y for x, y in _TITLES.items() if name.startswith(x)), name)
      for name in names
    )

  def probability(self, confidence: float) -> float:
    """Return the probability that a best answer of this confidence is right."""
    slope, bias = self.scale
    return float(1 / (1 + np.exp(-slope * _logit(confidence) - bias)))

  def in_words(self, confidence: float) -> str:
    """Return a sentence that tells what `probability` means."""
    count = min(max(round(100 * self.probability(confidence)), 1), 99)
    return (
      f'About {count} of 100 such answers were right on the calibration '
      f'questions ({self.titles()}).'
    )


def calibrate(
  confidences: Sequence[float],
  right: Sequence[bool],
  sets: Sequence[str],
  made_of: Mapping[str, Any],
) -> Calibration:
  """Return the calibration of answers with the scale of maximum likelihood.

  Platt's targets, a little inside of 0 and 1, keep it finite.
  """
  from scipy import optimize

  logits, truth = _logit(confidences), np.asarray(right, np.float64)
  low, high = 1 / (2 + (1 - truth).sum()), 1 - 1 / (2 + truth.sum())
  targets = np.where(truth > 0, high, low)

  def loss(scale):
    x = scale[0] * logits + scale[1]
    return np.mean(np.logaddexp(0, x) - targets * x)

  scale = optimize.minimize(loss, [1.0, 0.0]).x.tolist()
  return Calibration(
    sets=sets,
    made_of=made_of,
    confidences=confidences,
    right=right,
    scale=scale,
  )


def read(path: pathlib.Path, missing: str = '') -> Calibration:
  """Read a calibration; errors as of `manifests.read_json`."""
  return Calibration(**manifests.read_json(path, missing))


def _logit(confidence: Any) -> Any:
  x = np.clip(np.asarray(confidence, np.float64), 1e-6, 1 - 1e-6)
  return np.log(x) - np.log1p(-x)
