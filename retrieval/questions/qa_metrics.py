# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of predicted answers, by the rules of published figures.

exact_match: the prediction equals an answer after normalisation. With nfd, the
  official rule of ORQA and REALM (Lee et al. 2019); without, that of DPR and FiD.
f1: overlap of tokens after the same normalisation (Rajpurkar et al. 2016).
regex_match: a regular expression matches the start of the raw prediction. The rule
  of DrQA and ORQA for CuratedTREC.

`answers` decides whether a retrieved text contains an answer.
"""

import collections
from collections.abc import Sequence
import re
import string
import unicodedata

from retrieval import arguments, settings
from retrieval.questions import answers as answers_lib

_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')


def normalize_answer(text: str, *, nfd: bool = True) -> str:
  """Lower the case; drop ASCII punctuation, English articles and extra blanks.

  Args:
    nfd: whether to decompose accented letters first. Both ways of writing an
      accented 'e' are equal then, and differ from a plain 'e'.
  """
  if nfd:
    text = unicodedata.normalize('NFD', text)
  text = text.lower().translate(_PUNCTUATION)
  return ' '.join(_ARTICLES.sub(' ', text).split())


def exact_match(
  prediction: str, answers: Sequence[str], *, nfd: bool = True
) -> bool:
  """Return whether the prediction equals an answer after normalisation."""
  predicted, golds = _normalized(prediction, answers, nfd)
  return predicted in golds


def contains(prediction: str, answers: Sequence[str]) -> bool:
  """Return whether the prediction holds an answer, word by word after normalisation.

  So "Abraham Lincoln" holds "Lincoln" (as Mallen et al. 2023, but whole words).
  """
  predicted, golds = _normalized(prediction, answers)
  return any(f' {gold} ' in f' {predicted} ' for gold in golds)


def f1(prediction: str, answers: Sequence[str]) -> float:
  """Return the harmonic mean of token precision and recall for the best answer.

  Where normalisation leaves no token of prediction or answer, the score is 1 if
  both are empty, else 0.
  """
  predicted, golds = _normalized(prediction, answers)
  scores = (_overlap(predicted.split(), gold.split()) for gold in golds)
  return max(scores, default=0.0)


def _normalized(
  prediction: str, answers: Sequence[str], nfd: bool = True
) -> tuple[str, list[str]]:
  answers = arguments.listed(answers, 'answers')
  settings.check_value('prediction', prediction, str)
  golds = [normalize_answer(answer, nfd=nfd) for answer in answers]
  return normalize_answer(prediction, nfd=nfd), golds


def _overlap(predicted: list[str], gold: list[str]) -> float:
  if not predicted or not gold:
    return float(predicted == gold)
  both = collections.Counter(predicted) & collections.Counter(gold)
  return 2 * both.total() / (len(predicted) + len(gold))


def regex_match(
  prediction: str, patterns: Sequence[str], *, anywhere: bool = False
) -> bool:
  """Return whether a regular expression matches the start of the raw prediction.

  An invalid pattern matches nothing and is logged once. With `anywhere` it may match
  at any place, but whole words.
  """
  patterns = arguments.listed(patterns, 'patterns')
  settings.check_value('prediction', prediction, str)
  if anywhere:
    patterns = [rf'(?<!\w)(?:{x})(?!\w)' for x in patterns]
  compiled = [x for x in map(answers_lib.compile_regex, patterns) if x]
  return any((x.search if anywhere else x.match)(prediction) for x in compiled)
