# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The exam of an index: agreement with exact search, speed, what to raise."""

import dataclasses
import itertools
import time
from typing import Any

import numpy as np

from retrieval import searchers
from retrieval.searchers import metrics
from retrieval.store import sharded_array


@dataclasses.dataclass(frozen=True)
class Exam:
  """Queries whose neighbors are sought.

  Attributes:
    queries: [q, d] float32.
    own: [q] int64. The row of the database that each query is, which does not
      count as its neighbor; -1 for none.
    k: neighbors of each.
  """

  queries: np.ndarray
  own: np.ndarray
  k: int

  @classmethod
  def of_queries(
    cls, queries: sharded_array.Rows, count: int, k: int
  ) -> 'Exam':
    """An exam of held-out queries, evenly spread over all of them."""
    count = min(count, len(queries))
    rows = np.arange(count) * len(queries) // max(count, 1)
    queries = np.asarray(queries[rows], np.float32)
    return cls(queries, np.full(len(queries), -1), k)

  @classmethod
  def of_rows(cls, vectors, count: int, k: int) -> 'Exam':
    """An exam of rows of the database, the same ones each time."""
    num_rows = int(vectors.shape[0])
    rng = np.random.default_rng(0)
    own = np.sort(rng.choice(num_rows, min(count, num_rows), replace=False))
    return cls(np.asarray(vectors[own], np.float32), own, k)

  def answer(
    self, searcher: searchers.Searcher, **settings: int
  ) -> tuple[np.ndarray, float]:
    """Ids [q, k] that a searcher finds, and its queries a second."""
    start = time.perf_counter()
    ids, _ = searcher.search(self.queries, self.k + 1, **settings)
    sec = time.perf_counter() - start
    drop = ids == self.own[:, None]
    drop[:, -1] |= ~drop.any(axis=1)
    return ids[~drop].reshape(len(ids), -1), len(ids) / max(sec, 1e-9)


def examine(
  searcher: searchers.Searcher,
  exact: searchers.ExactSearcher,
  exam: Exam,
  floor: float,
) -> dict[str, Any]:
  """Measures a searcher.

  Args:
    searcher: the one examined.
    exact: exact search over the same vectors; may be the same object.
    exam: what is asked.
    floor: least agreement with exact search.

  Returns:
    A report: recall@k, queries a second of both.

  Raises:
    ValueError: when the agreement is below the floor, with what to raise.
  """
  exam.answer(searcher)  # compiles
  ids, per_sec = exam.answer(searcher)
  report = {'searcher': searcher.name, 'vectors': searcher.num_vectors}
  recall = 1.0
  if searcher is not exact:
    exam.answer(exact)
    wanted, exact_per_sec = exam.answer(exact)
    scores = exact.score(exam.queries, wanted)

    def agreement(ids):
      found = exact.score(exam.queries, ids)
      return metrics.agreement_with_exact(ids, wanted, found, scores)

    recall = agreement(ids)
    report['exact_queries_per_sec'] = round(exact_per_sec, 1)
    if recall < floor:
      raise ValueError(
        f'recall@{exam.k} of the {searcher.name} index is {recall:.4f}, below '
        f'index.recall_floor={floor}. {_advice(searcher, exam, agreement, floor)}'
      )
  report[f'recall@{exam.k}'] = round(recall, 4)
  report['queries_per_sec'] = round(per_sec, 1)
  return report


def _advice(searcher, exam, agreement, floor) -> str:
  """What to raise, and to what, tried out on the index at hand."""
  limits = {
    'num_leaves_to_search': searcher.settings['num_leaves'],
    'num_to_rescore': searcher.num_vectors,
  }
  choices = [('num_leaves_to_search',), ('num_to_rescore',), tuple(limits)]
  for names, factor in itertools.product(choices, (2, 4, 8)):
    tried = {
      name: min(factor * searcher.settings[name], limits[name])
      for name in names
    }
    recall = agreement(exam.answer(searcher, **tried)[0])
    if recall >= floor:
      said = ' and '.join(f'index.scann.{n} to {v}' for n, v in tried.items())
      return f'Raise {said}, which reached {recall:.4f}.'
  return (
    'Raising what is searched does not reach it: set '
    'index.scann.rescore=float32 or index.searcher=exact.'
  )
