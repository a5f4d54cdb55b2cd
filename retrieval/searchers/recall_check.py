# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Recall check of an index: agreement with exact search, and speed."""

import dataclasses
import time
from typing import Any

from jaxtyping import Float, Int
import numpy as np

from retrieval.searchers import base
from retrieval.store import sharded_array


def agreement_with_exact(
  ids: Int[np.ndarray, 'b k'],
  exact: Int[np.ndarray, 'b k'],
  scores: Float[np.ndarray, 'b k'],
  exact_scores: Float[np.ndarray, 'b k'],
) -> float:
  """Return the mean share of the exact top k that another search finds.

  Any row as good as the k-th counts, since the order of equal rows is arbitrary. The
  share is 1 where exact search finds nothing.

  Args:
    ids: [b, k] ids of the tested search; -1 for none.
    exact: [b, k] ids of exact search; -1 for none.
    scores: [b, k] exact scores of `ids`.
    exact_scores: [b, k] exact scores of `exact`, best first.
  """
  if not exact.size:
    return 1.0
  counts = (exact >= 0).sum(1)
  last = np.maximum(counts - 1, 0)[:, None]
  least = np.take_along_axis(exact_scores, last, axis=1)
  hits = ((scores >= least) & (ids >= 0)).sum(1)
  shares = np.where(counts, hits / np.maximum(counts, 1), 1.0)
  return float(np.mean(shares))


@dataclasses.dataclass(frozen=True)
class RecallCheck:
  """Queries that measure a searcher."""

  queries: np.ndarray  # [q, d] float32
  # [q] int64 database row that equals each query and does not count as its
  # neighbor; -1 for none
  excluded: np.ndarray
  k: int

  @classmethod
  def of(
    cls, vectors, queries: sharded_array.Rows | None, count: int, k: int
  ) -> 'RecallCheck':
    """Take `count` held-out queries, evenly spread, or else rows of the database."""
    if queries is not None and len(queries):
      count = min(count, len(queries))
      rows = np.arange(count) * len(queries) // count
      excluded = np.full(count, -1)
      return cls(np.asarray(queries[rows], np.float32), excluded, k)
    count = min(count, len(vectors))
    rng = np.random.default_rng(0)
    excluded = np.sort(rng.choice(len(vectors), count, replace=False))
    return cls(np.asarray(vectors[excluded], np.float32), excluded, k)

  def answer(
    self, searcher: base.Searcher, num_rescored: int = 0, exact: Any = None
  ) -> tuple[np.ndarray, float]:
    """Return ids [q, k] that a searcher finds, and its queries per second.

    Args:
      num_rescored: hits that `exact` scores again.
    """
    fetch = max(self.k + 1, num_rescored)
    searcher.search(self.queries, fetch)  # compiles
    start = time.perf_counter()
    ids, _ = searcher.search(self.queries, fetch)
    if num_rescored:
      ids, _ = exact.best_of(self.queries, ids, self.k + 1)
    sec = time.perf_counter() - start
    drop = ids == self.excluded[:, None]
    drop[:, -1] |= ~drop.any(axis=1)
    ids = ids[~drop].reshape(len(ids), -1)
    return ids, round(len(ids) / max(sec, 1e-9), 1)


def measure(
  searcher: base.Searcher,
  exact: base.Searcher,
  check: RecallCheck,
  floor: float,
  num_rescored: int = 0,
) -> dict[str, Any]:
  """Measure recall@k and queries per second of a searcher.

  Args:
    exact: an `ExactSearcher` over the same vectors, or `searcher` itself.
    num_rescored: number of hits of which the caller takes the best by exact scores;
      0 takes the searcher's order.

  Raises:
    ValueError: when the agreement is below the floor; names settings to raise.
  """
  num_rescored = 0 if searcher is exact else num_rescored
  ids, per_sec = check.answer(searcher, num_rescored, exact)
  report = {'searcher': searcher.name, 'vectors': searcher.num_vectors}
  recall = 1.0
  if searcher is not exact:
    expected, report['exact_queries_per_sec'] = check.answer(exact)
    scores = (exact.score(check.queries, x) for x in (ids, expected))
    recall = agreement_with_exact(ids, expected, *scores)
    if recall < floor:
      raise ValueError(
        f'recall@{check.k} of the {searcher.name} index is {recall:.4f}, below '
        f'index.recall_floor={floor}. Raise index.scann.num_leaves_to_search or '
        'index.scann.num_to_rescore, or set index.scann.rescore=float32 or '
        'index.searcher=exact.'
      )
  return report | {
    f'recall@{check.k}': round(recall, 4),
    'queries_per_sec': per_sec,
  }
