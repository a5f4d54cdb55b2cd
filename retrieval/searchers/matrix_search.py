# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search on CPUs: matrix products in float32, then float64.

Rows are read once, block by block, and never copied. The k-th best score so far and
a bound on float32 rounding tell which rows of a block may belong to the best; these
are scored again in float64. So the result is that of float64, ties by the lower id.

Q queries, P rows of a block, G groups of a block's rows, D dimension.
"""

import concurrent.futures
import functools
import os
import threading
from typing import Any

import ml_dtypes
import numpy as np
import threadpoolctl

_QUERIES = 512  # of one product
_SCORES = 1 << 21  # of one product, 8 MB
_BLOCK_BYTES = 16 << 20  # of a block's rows in float32
_LEAST_ROWS = 1024  # of a block
_GROUP = 32  # rows that share one maximum, at most
_HELD = 1 << 22  # candidates of one batch that are held, if k allows
_PAIRS = 256  # of query and row scored in float64 at a time
_UNIT_ROUNDOFF = 2.0**-24
_ONE_SEARCH = threading.Lock()  # a search takes all cores
_blas = functools.cache(threadpoolctl.ThreadpoolController)


def rounding(dimension: int, metric: str, query_norms, largest) -> np.ndarray:
  """Bound the float32 error of q.x, or of q.x - |x|^2 / 2 for 'squared_l2'.

  Args:
    query_norms: [Q] float64 squared norms.
    largest: largest squared norm of a row, rounded to float32.
  """
  largest = 1.01 * largest
  scale = np.sqrt(query_norms * largest)
  if metric == 'squared_l2':
    scale = scale + largest
  # Products below 2^-126 may become zero.
  return (dimension + 8) * _UNIT_ROUNDOFF * scale + dimension * 2.0**-126


def squared_norms(x: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
  """Return the squared norm of each row."""
  return np.einsum('nd,nd->n', x, x, dtype=dtype)


def score_pairs(
  vectors, metric: str, queries: np.ndarray, owners, ids
) -> np.ndarray:
  """Return the float64 scores [n] of rows `ids` for queries `owners`: [n] each."""
  scores = np.empty(len(ids))
  in_memory = type(vectors) is np.ndarray
  # Rows on disk are read in order.
  order = np.arange(len(ids)) if in_memory else np.argsort(ids, kind='stable')
  for low in range(0, len(ids), _PAIRS):
    pairs = order[low : low + _PAIRS]
    if in_memory:
      left = vectors[ids[pairs]]
    else:
      unique, at = np.unique(ids[pairs], return_inverse=True)
      left = vectors[unique][at]
    left, right = np.asarray(left, np.float32), queries[owners[pairs]]
    if metric == 'squared_l2':
      left = right = left.astype(np.float64) - right
    # A matrix product could give equal rows different last bits.
    products = np.einsum('pd,pd->p', left, right, dtype=np.float64)
    scores[pairs] = -products if metric == 'squared_l2' else products
  return scores


class MatrixSearch:
  """Search of vectors [n, d], read slice by slice."""

  def __init__(self, vectors, metric: str):
    self._vectors, self._metric = vectors, metric
    self._norms = np.full(vectors.shape[0], np.nan, np.float32)
    self._thread = threading.local()  # holds a buffer for scores

  def __call__(
    self, queries: np.ndarray, k: int, mask: np.ndarray | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and float64 scores [b, k] of float32 queries.

    `mask` [n] tells the rows to search, k at least; None is all rows.
    """
    batches = [
      _Batch(self._vectors, self._metric, queries[low : low + _QUERIES], k)
      for low in range(0, len(queries), _QUERIES)
    ]
    num_rows, dimension = self._vectors.shape
    cores = _num_cores()
    step = min(
      _SCORES // min(_QUERIES, len(queries)),
      _BLOCK_BYTES // (4 * dimension),
      -(-num_rows // cores),
    )
    step = max(_LEAST_ROWS, -(-step // _GROUP) * _GROUP)

    def work(low: int) -> None:
      block = _float32(self._vectors[low : low + step])
      norms = self._norms[low : low + step]
      if np.isnan(norms).any():
        norms[:] = squared_norms(block)
      out = None if mask is None else ~mask[low : low + step]
      for batch in batches:
        batch.add(low, block, norms, self._buffer(), out)

    lows = range(0, num_rows, step)
    # Each thread multiplies a block by itself.
    with _ONE_SEARCH, _blas().limit(limits=1, user_api='blas'):
      if cores == 1 or len(lows) == 1:
        list(map(work, lows))
      else:
        with concurrent.futures.ThreadPoolExecutor(cores) as pool:
          list(pool.map(work, lows))
    results = [batch.best() for batch in batches]
    return tuple(map(np.concatenate, zip(*results, strict=True)))

  def _buffer(self) -> np.ndarray:
    if not hasattr(self._thread, 'buffer'):
      self._thread.buffer = np.empty(
        _SCORES + 2 * _GROUP * _QUERIES, np.float32
      )
    return self._thread.buffer


class _Batch:
  """The candidates of some queries among the rows so far."""

  def __init__(self, vectors, metric: str, queries: np.ndarray, k: int):
    self._vectors, self._metric = vectors, metric
    self._queries, self._k = queries, k
    self._query_norms = squared_norms(queries, np.float64)
    self._largest = np.float32(0)
    self._group = max(1, min(_GROUP, vectors.shape[0] // (4 * k)))
    # The best k maxima of groups.
    self._tops = np.full((len(queries), k), -np.inf, np.float32)
    self._lock = threading.Lock()  # of what follows
    # Owner, id and float32 score of each candidate.
    self._held: list[tuple[np.ndarray, ...]] = []

  def add(
    self,
    low: int,
    block: np.ndarray,
    norms: np.ndarray,
    buffer: np.ndarray,
    out: np.ndarray | None,
  ) -> None:
    """Add rows [P, D] from id `low` on, with squared norms [P], except rows `out`."""
    group, count = self._group, len(block)
    groups, width = -(-count // group), len(self._queries)
    scores = buffer[: groups * group * width].reshape(-1, width)
    if width == 1:
      np.einsum('pd,d->p', block, self._queries[0], out=scores[:count, 0])
    else:
      np.matmul(block, self._queries.T, out=scores[:count])
    if self._metric == 'squared_l2':
      scores[:count] -= norms[:, None] / 2
    if out is not None:
      scores[:count][out] = -np.inf
    scores[count:] = -np.inf
    # Members of a group lie apart, so that the maximum runs over whole rows.
    grouped = scores.reshape(group, groups, width)
    tops = np.ascontiguousarray(grouped.max(axis=0).T)
    with self._lock:
      self._largest = max(self._largest, norms.max())
      best = np.concatenate([self._tops, tops], axis=1)
      self._tops = np.partition(best, -self._k, axis=1)[:, -self._k :]
      least = self._least()
    owners, columns = np.nonzero(tops >= least[:, None])
    members = grouped[:, columns, owners]
    is_hit = (members >= least[owners]) & (members > -np.inf)
    places, hits = np.nonzero(is_hit)
    ids = low + places * groups + columns[hits]
    with self._lock:
      self._held.append((owners[hits], ids, members[places, hits]))
      if sum(len(x[0]) for x in self._held) > max(_HELD, 4 * self._tops.size):
        self._held = [self._select()[:3]]

  def _least(self) -> np.ndarray:
    """Return the least float32 score [Q] of a row that may be among the best k."""
    dimension = self._queries.shape[1]
    error = rounding(dimension, self._metric, self._query_norms, self._largest)
    least = self._tops.min(axis=1).astype(np.float64) - 2 * error
    return np.nextafter(least.astype(np.float32), np.float32(-np.inf))

  def _select(self) -> tuple[np.ndarray, ...]:
    """Return owners, ids, float32 and float64 scores of the best k, best first."""
    owners, ids, values = map(np.concatenate, zip(*self._held, strict=True))
    (real,) = np.nonzero(values >= self._least()[owners])
    owners, ids, values = owners[real], ids[real], values[real]
    scores = score_pairs(
      self._vectors, self._metric, self._queries, owners, ids
    )
    order = np.lexsort((ids, -scores, owners))
    sorted_owners = owners[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_owners, sorted_owners)
    order = order[rank < self._k]
    return owners[order], ids[order], values[order], scores[order]

  def best(self) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and float64 scores [Q, k]."""
    _, ids, _, scores = self._select()
    shape = len(self._queries), self._k
    return ids.reshape(shape), scores.reshape(shape)


def _num_cores() -> int:
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _float32(block) -> np.ndarray:
  """Return rows as float32; NumPy vectorizes a shift of bfloat16."""
  block = np.asarray(block)
  if block.dtype != ml_dtypes.bfloat16:
    return np.asarray(block, np.float32)
  return (block.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
