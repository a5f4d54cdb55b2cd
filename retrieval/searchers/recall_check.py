# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Recall check of an index: agreement with exact search, and speed."""

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


def measure(
  searcher: base.Searcher,
  exact: base.Searcher,
  vectors,
  queries: sharded_array.Rows | None = None,
  *,
  num_queries: int,
  k: int,
  floor: float,
  num_rescored: int = 0,
) -> dict[str, Any]:
  """Measure recall@k and queries per second of a searcher.

  Args:
    exact: an `ExactSearcher` over the same vectors, or `searcher` itself.
    vectors: [n, d] of the database.
    queries: [q, d] held-out queries, of which `num_queries` are taken, evenly spread;
      None takes rows of the database, which do not find themselves.
    num_rescored: number of hits of which the caller takes the best by exact scores;
      0 takes the searcher's order.

  Raises:
    ValueError: when the agreement is below the floor; names settings to raise.
  """
  asked, own = sample(vectors, queries, num_queries)
  num_rescored = 0 if searcher is exact else num_rescored
  ids, per_sec = answer(searcher, asked, own, k, num_rescored, exact)
  report = {'searcher': searcher.name, 'vectors': searcher.num_vectors}
  recall = 1.0
  if searcher is not exact:
    expected, report['exact_queries_per_sec'] = answer(exact, asked, own, k)
    scores = (exact.score(asked, x) for x in (ids, expected))
    recall = agreement_with_exact(ids, expected, *scores)
    if recall < floor:
      raise ValueError(
        f'recall@{k} of the {searcher.name} index is {recall:.4f}, below '
        f'index.recall_floor={floor}. Raise index.scann.num_leaves_to_search or '
        'index.scann.num_to_rescore, or set index.scann.rescore=float32 or '
        'index.searcher=exact.'
      )
  return report | {f'recall@{k}': round(recall, 4), 'queries_per_sec': per_sec}


def sample(
  vectors, queries: sharded_array.Rows | None, count: int
) -> tuple[np.ndarray, np.ndarray]:
  """Return queries [q, d] float32, and the row [q] that each of them is, -1 for none."""
  if queries is not None and len(queries):
    count = min(count, len(queries))
    rows = np.arange(count) * len(queries) // count
    return np.asarray(queries[rows], np.float32), np.full(count, -1)
  rng = np.random.default_rng(0)
  size = min(count, len(vectors))
  rows = np.sort(rng.choice(len(vectors), size, replace=False))
  return np.asarray(vectors[rows], np.float32), rows


def answer(
  searcher: base.Searcher,
  queries: np.ndarray,
  own: np.ndarray,
  k: int,
  num_rescored: int = 0,
  exact: Any = None,
) -> tuple[np.ndarray, float]:
  """Return ids [q, k] other than the queries' rows, and queries per second."""
  fetch = max(k + 1, num_rescored)
  searcher.search(queries, fetch)  # compiles
  start = time.perf_counter()
  ids, _ = searcher.search(queries, fetch)
  if num_rescored:
    ids, _ = exact.best_of(queries, ids, k + 1)
  sec = time.perf_counter() - start
  drop = ids == own[:, None]
  drop[:, -1] |= ~drop.any(axis=1)
  ids = ids[~drop].reshape(len(ids), -1)
  return ids, round(len(ids) / max(sec, 1e-9), 1)
