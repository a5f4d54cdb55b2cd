# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search without the passages of each query's document.

Borgeaud et al. 2021, section 2.2. The search fetches more rows than asked for; an exact
search repeats the queries that the exclusion leaves short, so that it loses no
passage. Documents are compared by the hash of their id, so that queries and passages
may come from different token stores.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from absl import logging
from jaxtyping import Int, UInt64
import numpy as np

from retrieval.searchers import base, subset as subset_lib
from retrieval.store import sharded_array

_MAX_FETCH = 128  # rows of a query, unless k is larger


@runtime_checkable
class Index(Protocol):
  """Rows for queries of some kind: vectors, as `searchers.Searcher`, or texts."""

  unit: str  # of the scores, see `base.in_unit`

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> base.Hits:
    """Return ids [b, k] and scores [b, k], best first, -1 and -inf for none.

    Only rows of the subset are results; None is all rows.
    """


def other_columns(
  ids: Int[np.ndarray, 'b fetched'],
  hashes: UInt64[np.ndarray, 'b fetched'],
  excluded: UInt64[np.ndarray, ' b'],
  k: int,
) -> Int[np.ndarray, 'b k']:
  """Return the columns of the first k ids that do not belong to the query.

  Args:
    ids: retrieved ids, best first; negative for none.
    hashes: of each id's document or block.
    excluded: hash of each query's document or block.

  Returns:
    Columns of `ids`, ascending, -1 where fewer than k are left.
  """
  return subset_lib.first((ids >= 0) & (hashes != excluded[:, None]), k)


def _count_by_document(
  shard_hashes: Iterable[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
  """Return the hashes of all documents, ascending, and their passage counts."""
  pairs = [np.unique(hashes, return_counts=True) for hashes in shard_hashes]
  hashes, counts = map(np.concatenate, zip(*pairs, strict=True))
  unique, rows = np.unique(hashes, return_inverse=True)
  return unique, np.bincount(rows, counts).astype(np.int64)


class OtherDocuments:
  """Search of k passages of other documents than the query's."""

  def __init__(
    self,
    index: Index,
    exact: Callable[[], Index],
    id_hash: sharded_array.Rows,
    k: int,
    subset: subset_lib.Subset | None = None,
  ):
    """Count the passages by document, in 16 bytes for each document.

    Args:
      exact: opens an exact search of the same rows.
      id_hash: [n] hash of the id of each passage's document.
      subset: of the rows; None is all.
    """
    self._index, self._exact = index, exact
    self._id_hash, self._k, self._subset = id_hash, k, subset
    parts = [id_hash if subset is None else id_hash[subset.rows]]
    self._num_rows = len(parts[0])
    if subset is None and isinstance(id_hash, sharded_array.ShardedArray):
      parts = map(id_hash.shard, range(id_hash.num_shards))
    self._hashes, self._counts = _count_by_document(parts)
    largest = int(self._counts.max(initial=0))
    self._fetch = min(k + largest, max(_MAX_FETCH, k + 1), self._num_rows)

  def search(self, asked: np.ndarray, excluded: np.ndarray) -> base.Hits:
    """Return ids and scores [b, k] of passages, -1 and -inf where there are no more.

    Args:
      asked: [b, ...] what the index takes: vectors [b, d], or texts [b].
      excluded: [b] hash of the id of each query's document.
    """
    if not self._num_rows:
      return base.nothing(len(asked), self._k)
    ids, scores = self._others(self._index, asked, excluded, self._fetch)
    at = np.searchsorted(self._hashes, excluded)
    at = np.minimum(at, len(self._hashes) - 1)
    mine = np.where(self._hashes[at] == excluded, self._counts[at], 0)
    reachable = np.minimum(self._k, self._num_rows - mine)
    short = np.flatnonzero((ids >= 0).sum(1) < reachable)
    if len(short):
      logging.log_every_n_seconds(
        logging.INFO,
        'An exact search repeats %d of %d queries.',
        60,
        len(short),
        len(ids),
      )
      fetch = int(min(self._k + mine[short].max(), self._num_rows))
      ids[short], scores[short] = self._others(
        self._exact(), asked[short], excluded[short], fetch
      )
    return ids, scores

  def _others(self, index: Index, asked, excluded, fetch: int) -> base.Hits:
    ids, scores = index.search(asked, fetch, self._subset)
    hashes = self._id_hash[np.maximum(ids, 0)]
    columns = other_columns(ids, hashes, excluded, self._k)
    scores = subset_lib.take(scores, columns, -np.inf).astype(np.float32)
    return subset_lib.take(ids, columns, -1).astype(np.int64), scores
