# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of ranked blocks, one value a question, with their intervals.

A block is relevant to a question or it is not. Question answering calls the share of
questions with a relevant block among the first k recall@k (Karpukhin et al. 2020,
section 5.1); it is success_k of trec_eval, whose recall_k is another measure.

Dimension key: n questions, c ranks.
"""

from collections.abc import Mapping, Sequence

from jaxtyping import Bool, Float, Int
import numpy as np

from retrieval.questions import bootstrap
from retrieval.searchers import base

KS = (1, 5, 20, 100)
NDCG_AT = 10
Values = dict[str, Float[np.ndarray, ' n']]


def recall_at_k(
  relevant: Bool[np.ndarray, 'n c'], k: int
) -> Float[np.ndarray, ' n']:
  """Return 1 for each question with a relevant block in the first k, else 0."""
  base.check_k(k)
  return relevant[:, :k].any(axis=1).astype(np.float64)


def reciprocal_rank(
  relevant: Bool[np.ndarray, 'n c'],
) -> Float[np.ndarray, ' n']:
  """Return 1 / rank of the first relevant block, or 0 without one."""
  ranks = 1 + np.arange(relevant.shape[1])
  return (relevant / ranks).max(axis=1, initial=0)


def ndcg(
  relevant: Bool[np.ndarray, 'n c'], num_relevant: Int[np.ndarray, ' n'], k: int
) -> Float[np.ndarray, ' n']:
  """Return the normalised discounted cumulative gain of the first k blocks.

  Jarvelin and Kekalainen 2002 with gain 1 for a relevant block and the discount
  log2(1 + rank), as ndcg_cut of trec_eval.

  Args:
    num_relevant: [n] number of relevant blocks, found or not; the ideal ranking has
      all of them first. A question without any has the value 0.

  Raises:
    ValueError: for k < 1, or fewer relevant blocks than `relevant` holds.
  """
  base.check_k(k)
  found = relevant.sum(axis=1)
  if (found > num_relevant).any():
    row = int(np.argmax(found > num_relevant))
    raise ValueError(
      f'Question {row}: {found[row]} relevant blocks are ranked, expected at most '
      f'the {num_relevant[row]} that exist.'
    )
  discounts = 1 / np.log2(2 + np.arange(k))
  gained = relevant[:, :k] @ discounts[: relevant.shape[1]]
  ideal = np.concatenate([[0], np.cumsum(discounts)])
  return gained / np.maximum(ideal[np.minimum(num_relevant, k)], 1.0)


def measure(
  relevant: Bool[np.ndarray, 'n c'],
  num_relevant: Int[np.ndarray, ' n'],
  ks: Sequence[int] = KS,
) -> Values:
  """Return measure -> [n] values: recall@K for each K up to c, MRR and nDCG@10."""
  values = {
    f'recall@{k}': recall_at_k(relevant, k)
    for k in ks
    if k <= relevant.shape[1]
  }
  values['MRR'] = reciprocal_rank(relevant)
  values[f'nDCG@{NDCG_AT}'] = ndcg(relevant, num_relevant, NDCG_AT)
  return values


def intervals(
  values: Mapping[str, Float[np.ndarray, ' n']],
) -> dict[str, bootstrap.Interval]:
  """Return measure -> mean and 95 % interval over questions."""
  return {name: bootstrap.bootstrap(x) for name, x in values.items()}


def differences(
  values: Mapping[str, Float[np.ndarray, ' n']],
  first: Mapping[str, Float[np.ndarray, ' n']],
) -> dict[str, bootstrap.Interval]:
  """Return measure -> mean of `values` less `first` and its paired 95 % interval.

  Both are of the same questions in the same order.
  """
  return intervals({n: x - first[n] for n, x in values.items() if n in first})
