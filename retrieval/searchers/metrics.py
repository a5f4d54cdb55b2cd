# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of retrieval."""

from jaxtyping import Float
from jaxtyping import Int
import numpy as np


def agreement_with_exact(
  found: Int[np.ndarray, 'b k'],
  exact: Int[np.ndarray, 'b k'],
  found_scores: Float[np.ndarray, 'b k'] | None = None,
  exact_scores: Float[np.ndarray, 'b k'] | None = None,
) -> float:
  """Share of the exact top k that an approximate search also finds.

  Where a database holds one vector several times, which of them is among the
  top k is arbitrary. With scores, any row as good as the k-th counts.

  Args:
    found: [b, k] ids of the search under test; -1 for none.
    exact: [b, k] ids of exact search; -1 for none.
    found_scores: [b, k] exact scores of `found`.
    exact_scores: [b, k] exact scores of `exact`, best first.

  Returns:
    Mean over queries, in [0, 1]; 1 where exact search finds nothing either.

  Raises:
    ValueError: when the shapes differ.
  """
  if found.shape != exact.shape:
    raise ValueError(f'Shapes {found.shape} and {exact.shape} differ.')
  if not exact.size:
    return 1.0
  real = exact >= 0
  wanted = real.sum(1)
  if found_scores is None or exact_scores is None:
    same = exact[:, :, None] == found[:, None]
    hits = (same & real[..., None]).any(2).sum(1)
  else:
    last = np.maximum(wanted - 1, 0)[:, None]
    least = np.take_along_axis(np.asarray(exact_scores), last, axis=1)
    hits = ((found_scores >= least) & (found >= 0)).sum(1)
  shares = np.where(wanted, hits / np.maximum(wanted, 1), 1.0)
  return float(np.mean(shares))


def recall_at_k(
  ids: Int[np.ndarray, 'b n'], relevant: list[set], k: int
) -> float:
  """Share of queries with a relevant id among the first k.

  Args:
    ids: [b, n] retrieved ids, best first.
    relevant: [b] sets of the ids that count.
    k: how many to look at.

  Returns:
    A float in [0, 1].

  Raises:
    ValueError: when there are fewer than k columns or no queries.
  """
  if not len(ids) or k > ids.shape[1] or len(relevant) != len(ids):
    raise ValueError(
      f'recall@{k} of ids {ids.shape} and {len(relevant)} sets: expected as '
      'many sets as rows, at least one, and at least k columns.'
    )
  rows = zip(ids[:, :k].tolist(), relevant, strict=True)
  return float(np.mean([bool(wanted & set(row)) for row, wanted in rows]))
