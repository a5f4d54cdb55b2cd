# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search among some rows of an index.

Exact search, BM25, TF-IDF and late interaction leave the other rows out inside the
search; other indices find more rows than are asked for, until enough are in the subset.
"""

from collections.abc import Callable
import dataclasses
import functools

from jaxtyping import Bool, Int
import numpy as np

from retrieval.searchers import base

_FEW = 8  # one row of so many
_HELD = 1 << 24  # rows of all queries that are ranked at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Subset:
  """The rows of an index that a search may find; searches cache by the instance."""

  mask: Bool[np.ndarray, ' n']
  fingerprint: str = ''  # hash of the filter

  @functools.cached_property
  def rows(self) -> Int[np.ndarray, ' m']:
    """The rows, ascending."""
    return np.flatnonzero(self.mask)

  @property
  def are_few(self) -> bool:
    """Whether reading only these rows is faster than reading all."""
    return _FEW * len(self.rows) <= len(self.mask)

  @functools.cached_property
  def within(self) -> Callable[[range], 'Subset']:
    """Subset of consecutive rows of the index; the same at each call."""
    return functools.cache(
      lambda span: Subset(
        self.mask[span.start : span.stop], f'{self.fingerprint} {span}'
      )
    )

  def check(self, num_rows: int) -> None:
    """Raise ValueError unless the mask is one of all rows of an index."""
    if self.mask.shape != (num_rows,):
      raise ValueError(
        f'subset: a mask of shape {self.mask.shape}, expected [{num_rows}].'
      )


def first(mask: Bool[np.ndarray, 'b n'], k: int) -> Int[np.ndarray, 'b k']:
  """Return the first k columns that are True, -1 where there are fewer."""
  order = np.argsort(~mask, axis=1, kind='stable')[:, :k]
  columns = np.where(np.take_along_axis(mask, order, axis=1), order, -1)
  return np.pad(
    columns, ((0, 0), (0, k - columns.shape[1])), constant_values=-1
  )


def take(
  values: np.ndarray, columns: np.ndarray, none: int | float
) -> np.ndarray:
  """Return values [b, n] at columns [b, k], `none` where a column is -1."""
  taken = np.take_along_axis(values, np.maximum(columns, 0), axis=1)
  return np.where(columns >= 0, taken, none)


def over_fetch(
  search: Callable[[np.ndarray, int], base.Hits],
  queries: np.ndarray,
  k: int,
  subset: Subset,
) -> base.Hits:
  """Search for more and more rows until each query has k of a subset.

  Args:
    search: (queries, number of rows) -> ids and scores, best first.

  Returns:
    ids [b, k] and scores [b, k]; -1 and -inf only where the subset has no more.
  """
  base.check_k(k)
  ids, scores = base.nothing(len(queries), k)
  num_rows, count = len(subset.mask), min(k, len(subset.rows))
  if not count:
    return ids, scores
  fetch = min(num_rows, 2 * k * num_rows // len(subset.rows))
  left = np.arange(len(queries))
  while len(left):
    size = max(1, _HELD // fetch)
    for some in np.split(left, range(size, len(left), size)):
      rows, values = search(queries[some], fetch)
      columns = first((rows >= 0) & subset.mask[rows], k)
      ids[some] = take(rows, columns, -1)
      scores[some] = take(values, columns, -np.inf)
    if fetch == num_rows:
      break
    left = left[(ids[left] >= 0).sum(axis=1) < count]
    fetch = min(num_rows, 4 * fetch)
  return ids, scores
