# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Recall check of an index: agreement with exact search, speed, advice."""

import dataclasses
import itertools
import time
from typing import Any

from jaxtyping import Float, Int
import numpy as np

from retrieval.searchers import base
from retrieval.store import sharded_array


def agreement_with_exact(
  found: Int[np.ndarray, 'b k'],
  exact: Int[np.ndarray, 'b k'],
  found_scores: Float[np.ndarray, 'b k'] | None = None,
  exact_scores: Float[np.ndarray, 'b k'] | None = None,
) -> float:
  """Return the mean share of the exact top k that another search finds.

  With scores, any row as good as the k-th counts, since the order of equal rows
  is arbitrary. The share is 1 where exact search finds nothing.

  Args:
    found: [b, k] ids of the tested search; -1 for none.
    exact: [b, k] ids of exact search; -1 for none.
    found_scores: [b, k] exact scores of `found`.
    exact_scores: [b, k] exact scores of `exact`, best first.

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


@dataclasses.dataclass(frozen=True)
class RecallCheck:
  """Queries that measure a searcher."""

  queries: np.ndarray  # [q, d] float32
  # [q] int64 database row that equals each query and does not count as its
  # neighbor; -1 for none
  own: np.ndarray
  k: int

  @classmethod
  def of_queries(
    cls, queries: sharded_array.Rows, count: int, k: int
  ) -> 'RecallCheck':
    """Take `count` held-out queries, evenly spread over all of them."""
    count = min(count, len(queries))
    rows = np.arange(count) * len(queries) // max(count, 1)
    queries = np.asarray(queries[rows], np.float32)
    return cls(queries, np.full(len(queries), -1), k)

  @classmethod
  def of_rows(cls, vectors, count: int, k: int) -> 'RecallCheck':
    """Take `count` rows of the database, the same ones each time."""
    num_rows = int(vectors.shape[0])
    rng = np.random.default_rng(0)
    count = min(count, num_rows)
    own = np.sort(rng.choice(num_rows, count, replace=False))
    return cls(np.asarray(vectors[own], np.float32), own, k)

  def answer(
    self, searcher: base.Searcher, **settings: int
  ) -> tuple[np.ndarray, float]:
    """Return ids [q, k] that a searcher finds, and its queries per second."""
    start = time.perf_counter()
    ids, _ = searcher.search(self.queries, self.k + 1, **settings)
    sec = time.perf_counter() - start
    drop = ids == self.own[:, None]
    drop[:, -1] |= ~drop.any(axis=1)
    return ids[~drop].reshape(len(ids), -1), len(ids) / max(sec, 1e-9)


def measure(
  searcher: base.Searcher,
  exact: base.Searcher,
  check: RecallCheck,
  floor: float,
) -> dict[str, Any]:
  """Measure recall@k and queries per second of a searcher.

  Args:
    exact: an `ExactSearcher` over the same vectors, or `searcher` itself.

  Returns:
    Report of recall@k and of the queries per second of both searchers.

  Raises:
    ValueError: when the agreement is below the floor; names settings to raise.
  """
  ids, per_sec = _answer(check, searcher)
  report = {'searcher': searcher.name, 'vectors': searcher.num_vectors}
  recall = 1.0
  if searcher is not exact:
    wanted, exact_per_sec = _answer(check, exact)
    scores = exact.score(check.queries, wanted)

    def agreement(ids):
      found = exact.score(check.queries, ids)
      return agreement_with_exact(ids, wanted, found, scores)

    recall = agreement(ids)
    report['exact_queries_per_sec'] = exact_per_sec
    if recall < floor:
      raise ValueError(
        f'recall@{check.k} of the {searcher.name} index is {recall:.4f}, below '
        f'index.recall_floor={floor}. {_advice(searcher, check, agreement, floor)}'
      )
  return report | {
    f'recall@{check.k}': round(recall, 4),
    'queries_per_sec': per_sec,
  }


def _answer(check: RecallCheck, searcher) -> tuple[np.ndarray, float]:
  """Return the ids [q, k] found, and the queries per second once compiled."""
  check.answer(searcher)
  ids, per_sec = check.answer(searcher)
  return ids, round(per_sec, 1)


def _advice(searcher, check, agreement, floor) -> str:
  """Return the settings that reach the floor, tried on the index itself."""
  now, limits = searcher.settings, {}
  if 'num_leaves' in now:
    limits['num_leaves_to_search'] = now['num_leaves']
    limits['num_to_rescore'] = searcher.num_vectors
  raised = [x for x, most in limits.items() if 0 < now[x] < most]
  choices = dict.fromkeys([*((x,) for x in raised), tuple(raised)])
  for names, factor in itertools.product(filter(None, choices), (2, 4, 8)):
    tried = {name: min(factor * now[name], limits[name]) for name in names}
    recall = agreement(check.answer(searcher, **tried)[0])
    if recall >= floor:
      said = ' and '.join(f'index.scann.{n} to {v}' for n, v in tried.items())
      return f'Raise {said}, which reached {recall:.4f}.'
  return (
    'Raising what is searched does not reach it: set '
    'index.scann.rescore=float32 or index.searcher=exact.'
  )
