# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a predicted answer is right, by the rules that published figures use.

exact_match: equal after normalisation to any of the answers. With nfd, ORQA's
  and REALM's official rule (Lee et al. 2019); without, DPR's and FiD's.
f1: overlap of tokens after the same normalisation (Rajpurkar et al. 2016).
regex_match: any regular expression matches from the prediction's start, as it
  was predicted. DrQA's and ORQA's rule for CuratedTREC. Whether a retrieved
  text holds an answer is another question, asked by `answers`.
"""

import collections
from collections.abc import Sequence
import re
import string
import unicodedata

from retrieval.questions import answers as answers_lib

_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')


def normalize_answer(text: str, *, nfd: bool = True) -> str:
  """Lower case, without ASCII punctuation, English articles and extra blanks.

  Args:
    text: an answer.
    nfd: decomposes letters with accents first, whose marks stay: an 'e' with an
      accent written either way is the same then, and still no plain 'e'.

  Returns:
    The answer in the form in which answers are compared.
  """
  if nfd:
    text = unicodedata.normalize('NFD', text)
  text = text.lower().translate(_PUNCTUATION)
  return ' '.join(_ARTICLES.sub(' ', text).split())


def exact_match(
  prediction: str, answers: Sequence[str], *, nfd: bool = True
) -> bool:
  """Whether the prediction equals any answer after normalisation."""
  predicted = normalize_answer(prediction, nfd=nfd)
  return any(predicted == normalize_answer(a, nfd=nfd) for a in answers)


def f1(prediction: str, answers: Sequence[str], *, nfd: bool = True) -> float:
  """Harmonic mean of the tokens' precision and recall, of the best answer.

  Args:
    prediction: what was predicted.
    answers: any of them is right.
    nfd: see `normalize_answer`.

  Returns:
    From 0 to 1. Where nothing is left of prediction or answer, 1 if nothing is
    left of both.
  """
  predicted = normalize_answer(prediction, nfd=nfd).split()
  golds = [normalize_answer(answer, nfd=nfd).split() for answer in answers]
  return max((_overlap(predicted, gold) for gold in golds), default=0.0)


def _overlap(predicted: list[str], gold: list[str]) -> float:
  if not predicted or not gold:
    return float(predicted == gold)
  both = collections.Counter(predicted) & collections.Counter(gold)
  return 2 * both.total() / (len(predicted) + len(gold))


def regex_match(prediction: str, patterns: Sequence[str]) -> bool:
  """Whether any regular expression matches at the prediction's start.

  Args:
    prediction: what was predicted, not normalised.
    patterns: regular expressions. One that is none matches nothing, which is
      logged once.

  Returns:
    Whether one matches; what follows the match does not matter.
  """
  compiled = (answers_lib.compile_regex(pattern) for pattern in patterns)
  return any(pattern and pattern.match(prediction) for pattern in compiled)
