# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The protocol of searchers, and the checks that they share."""

from collections.abc import Sequence
import json
import numbers
import pathlib
from typing import Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np

from retrieval.store import manifests, output_files

# ids [b, k] int64, -1 for none; scores [b, k] float32, -inf for none
Hits = tuple[np.ndarray, np.ndarray]
FIELDS = 'searcher.json'
METRICS = ('dot_product', 'squared_l2')
# metric -> what the scores of a searcher are
UNITS = {'dot_product': 'inner product', 'squared_l2': 'squared L2 distance'}
LARGEST = 1e17  # The sum of d squares still fits in float32.
_CHECK_BYTES = 64 << 20


@runtime_checkable
class Searcher(Protocol):
  """Maximum inner product or nearest neighbor search over fixed vectors."""

  name: str  # kind of searcher
  # 'dot_product', or 'squared_l2' with the negative distance as score
  metric: str
  unit: str  # of the scores, of `UNITS`
  num_vectors: int  # number of database rows
  dimension: int

  def search(self, queries: np.ndarray, k: int, subset: Any = None) -> Hits:
    """Find the k best rows of each query [b, dimension] float32.

    Args:
      subset: a `subset.Subset` of the rows; None is all.

    Returns:
      ids: [b, k] int64, best first; -1 where fewer than k exist.
      scores: [b, k] float32, larger is better; -inf there.
    """


def check_metric(metric: str) -> None:
  """Raise ValueError for an unknown metric."""
  if metric not in METRICS:
    raise ValueError(f'metric {metric!r}: expected one of {METRICS}.')


def check_vectors(
  vectors, *, values: bool = True, ids: Sequence[int] | np.ndarray | None = None
) -> tuple[int, int]:
  """Check a database block by block, and return n and d; `values` reads all of it.

  Args:
    ids: numbers of the rows in messages; None counts them.

  Raises:
    ValueError: for no array, another type or shape, or a value that is not finite
      or so large that a float32 score could overflow.
  """
  _check_type(vectors, 'Database')
  if len(vectors.shape) != 2 or not vectors.shape[1]:
    raise ValueError(
      f'Database of shape {tuple(vectors.shape)}: expected [rows, dimension].'
    )
  step = max(1, _CHECK_BYTES // (4 * vectors.shape[1]))
  for low in range(0, vectors.shape[0] if values else 0, step):
    block = np.asarray(vectors[low : low + step])
    rows = (
      range(low, low + len(block)) if ids is None else ids[low : low + step]
    )
    _check_values(block, 'Database row', rows)
  return int(vectors.shape[0]), int(vectors.shape[1])


def _check_type(array, what: str) -> None:
  """Raise ValueError unless `array` holds real numbers."""
  kind = getattr(array, 'dtype', None)
  if kind is None:
    raise ValueError(
      f'{what} is a {type(array).__name__}: expected an array of floats, '
      '[rows, dimension].'
    )
  if np.dtype(kind).kind not in 'fiub' and kind != ml_dtypes.bfloat16:
    raise ValueError(f'{what} of type {kind}: expected floats.')


def _check_values(
  block: np.ndarray, what: str, rows: Sequence[int] | np.ndarray
) -> None:
  # One pass without a mask of the whole block. NaN fails the comparison.
  if np.abs(block.astype(np.float32, copy=False)).max(initial=0) < LARGEST:
    return
  bad = ~(np.abs(block) < LARGEST).all(axis=1)
  row = int(np.flatnonzero(bad)[0])
  reason = 'NaN or infinity'
  if np.isfinite(block[row]).all():
    reason = f'a value beyond {LARGEST:g}, which overflows float32 scores'
  raise ValueError(f'{what} {rows[row]} holds {reason}.')


def check_queries(queries, dimension: int, k=1) -> np.ndarray:
  """Check queries, an array or nested lists; return them as [b, d] float32.

  Raises:
    ValueError: for another type or shape, a k that is no number above 0, or a value
      that is not finite or too large.
  """
  try:
    queries = np.asarray(queries)
  except ValueError:
    raise ValueError(
      f'Queries in rows of unequal length: expected [batch, {dimension}].'
    ) from None
  _check_type(queries, 'Queries')
  queries = queries.astype(np.float32, copy=False)
  if queries.ndim != 2 or queries.shape[1] != dimension:
    raise ValueError(
      f'Queries of shape {queries.shape}: expected [batch, {dimension}].'
    )
  check_k(k)
  _check_values(queries, 'Query', range(len(queries)))
  return queries


def in_unit(score: float, unit: str) -> float:
  """Return a score in its unit; scores of distances are their negatives."""
  return -score if unit.endswith('distance') else score


def check_k(k) -> None:
  """Raise ValueError unless k is a whole number above 0."""
  if not isinstance(k, numbers.Integral) or k < 1:
    raise ValueError(f'k={k!r}: expected a whole number of at least 1.')


def best(ids: np.ndarray, scores: np.ndarray, k: int) -> Hits:
  """Return the best k of candidates [b, c], ties by the lower id."""
  order = np.lexsort((ids, -scores), axis=1)[:, :k]
  return tuple(np.take_along_axis(x, order, 1) for x in (ids, scores))


def pad(ids: np.ndarray, scores: np.ndarray, k: int) -> Hits:
  """Append columns of -1 and -inf up to k columns."""
  width = ((0, 0), (0, k - ids.shape[1]))
  return (
    np.pad(ids.astype(np.int64), width, constant_values=-1),
    np.pad(scores.astype(np.float32), width, constant_values=-np.inf),
  )


def nothing(count: int, k: int) -> Hits:
  """Return ids and scores of `count` queries that find nothing."""
  shape = (count, k)
  return np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)


def write_fields(path: pathlib.Path, **fields: Any) -> None:
  """Write searcher.json of a saved searcher, last: its name, metric and others."""
  output_files.write(path / FIELDS, json.dumps(fields) + '\n')


def read_fields(path: pathlib.Path) -> dict[str, Any]:
  """Read searcher.json of a saved searcher; ValueError when it is damaged."""
  file = path / FIELDS
  fields = manifests.read_object(file, f'{file}: no searcher was saved here.')
  missing = {'name', 'metric'} - set(fields)
  if missing:
    raise ValueError(f'{file}: damaged, without {sorted(missing)}.')
  return fields


def check_files(path: pathlib.Path, sizes: dict[str, int]) -> None:
  """Raise ValueError for a file of another size, which can crash a library."""
  for name, size in sizes.items():
    file = path / name
    size_here = file.stat().st_size if file.exists() else 'none'
    if size_here != size:
      raise ValueError(
        f'{file}: damaged, {size_here} bytes where {size} were written; remove '
        f'{path} and build it again.'
      )
