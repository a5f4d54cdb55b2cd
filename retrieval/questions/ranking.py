# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of ranked blocks, one value a question, with their intervals.

Names are those of ir-measures (https://ir-measur.es) and values those of trec_eval:
nDCG@K, AP, AP@K, RR, RR@K, P@K, R@K and Success@K. A block is relevant where its grade
is above 0. Question answering calls the share of questions with a relevant block among
the first K recall@K (Karpukhin et al. 2020, section 5.1), which is Success@K and not
R@K, the share of a question's relevant blocks; and RR is MRR.

Dimension key: n questions, c ranks, m relevant blocks.
"""

from collections.abc import Callable, Mapping, Sequence
import re

from jaxtyping import Float, Int
import numpy as np

from retrieval.questions import bootstrap

MEASURES = ('recall@1', 'recall@5', 'recall@20', 'recall@100', 'MRR', 'nDCG@10')
Grades = Int[np.ndarray, 'n c']  # of the ranked blocks
Ideal = Int[np.ndarray, 'n m']  # grades of all relevant blocks, best first
Value = Float[np.ndarray, ' n']  # of a measure, a question each
Values = dict[str, Value]
_NAME = re.compile(r'([a-zA-Z]+)(?:@([1-9]\d{0,8}))?')


def ndcg(grades: Grades, ideal: Ideal, k: int) -> Value:
  """Return the normalised discounted cumulative gain of the first k blocks.

  Jarvelin and Kekalainen 2002 with a block's grade as gain and the discount
  log2(1 + rank), as ndcg_cut of trec_eval.

  Args:
    grades: [n, c] of the ranked blocks, 0 where a block is not relevant.
    ideal: [n, m] of all relevant blocks, ranked or not, best first, then 0. A
      question without any has the value 0.
  """
  gained, best = (
    x[:, :k] @ (1 / np.log2(2 + np.arange(min(k, x.shape[1]))))
    for x in (grades, ideal)
  )
  return gained / np.where(best > 0, best, 1.0)


def average_precision(grades: Grades, ideal: Ideal, k: int) -> Value:
  """Return the mean of the precisions at the ranks of all relevant blocks.

  The precision of a block that is not among the first k is 0; arguments as of `ndcg`.
  """
  relevant = grades[:, :k] > 0
  precisions = relevant.cumsum(axis=1) / (1 + np.arange(relevant.shape[1]))
  return (relevant * precisions).sum(axis=1) / np.maximum(_count(ideal), 1)


def _reciprocal_rank(grades, unused_ideal, k) -> np.ndarray:
  relevant = grades[:, :k] > 0
  return (relevant / (1 + np.arange(relevant.shape[1]))).max(axis=1, initial=0)


def _success(grades, unused_ideal, k) -> np.ndarray:
  return (grades[:, :k] > 0).any(axis=1).astype(np.float64)


def _count(grades: np.ndarray) -> np.ndarray:
  return np.count_nonzero(grades, axis=1)


# (grades, ideal, k) -> values, as of `ndcg`
_MEASURES: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
  'nDCG': ndcg,
  'AP': average_precision,
  'RR': _reciprocal_rank,
  'MRR': _reciprocal_rank,
  'P': lambda x, _, k: _count(x[:, :k]) / k,
  'R': lambda x, y, k: _count(x[:, :k]) / np.maximum(_count(y), 1),
  'Success': _success,
  'recall': _success,
}
NAMES = tuple(_MEASURES)
_WHOLE = ('nDCG', 'AP', 'RR', 'MRR')  # without @K of the whole ranking


def cut(name: str) -> int | None:
  """Return the K of a measure's name, 0 without K; None for an unknown name."""
  match = _NAME.fullmatch(name)
  if not match or match[1] not in (NAMES if match[2] else _WHOLE):
    return None
  return int(match[2] or 0)


def usual(depth: int, names: Sequence[str] = MEASURES) -> list[str]:
  """Return the measures that `depth` blocks suffice for, and nDCG."""
  return [x for x in names if cut(x) <= depth or x.startswith('nDCG')]


def measure(grades: Grades, ideal: Ideal, names: Sequence[str]) -> Values:
  """Return measure -> [n] values; arguments as of `ndcg`.

  Raises:
    ValueError: for an unknown name.
  """
  most, values = max(grades.shape[1], ideal.shape[1]), {}
  for name in names:
    if (k := cut(name)) is None:
      raise ValueError(f'measure {name!r}: expected NAME@K of {NAMES}.')
    values[name] = _MEASURES[name.partition('@')[0]](grades, ideal, k or most)
  return values


def intervals(values: Mapping[str, Value]) -> dict[str, bootstrap.Interval]:
  """Return measure -> mean and 95 % interval over questions."""
  return {name: bootstrap.bootstrap(x) for name, x in values.items()}


def differences(
  values: Mapping[str, Value], first: Mapping[str, Value]
) -> dict[str, bootstrap.Interval]:
  """Return measure -> mean of `values` less `first` and its paired 95 % interval.

  Both are of the same questions in the same order.
  """
  return intervals({n: x - first[n] for n, x in values.items() if n in first})
