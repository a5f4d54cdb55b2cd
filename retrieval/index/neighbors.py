# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Precomputed nearest neighbors of every chunk.

Borgeaud et al. 2021, section 2.2: neighbors from a chunk's own document are
excluded. The search fetches more rows than are kept. An exact search repeats
the queries that the exclusion leaves short, so the exclusion loses no neighbor.
Documents are compared by the hash of their id, so queries and datastore may
come from different token stores.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import functools
import os
from typing import Any

from absl import logging
from jaxtyping import Int, UInt64
import numpy as np

from retrieval import searchers
from retrieval.index import index as index_lib, vectors as vectors_lib
from retrieval.store import sharded_array, shards, store
from retrieval.text import chunks as chunks_lib

KIND = 'neighbors'
_QUERY_BATCH = 1024
# Another machine may sum float32 in another order.
_SCORE_RTOL, _SCORE_ATOL = 1e-5, 1e-5

# (vectors [b, d], hash of each query's document [b]) -> ids and scores [b, k]
SearchFn = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def other_columns(
  ids: Int[np.ndarray, 'b fetched'],
  hashes: UInt64[np.ndarray, 'b fetched'],
  own: UInt64[np.ndarray, ' b'],
  k: int,
) -> Int[np.ndarray, 'b k']:
  """Return the columns of the first k ids that do not belong to the query.

  Args:
    ids: [b, fetched] retrieved ids, best first; negative for none.
    hashes: [b, fetched] hash of each id's document or block.
    own: [b] hash of each query's own document or block.

  Returns:
    [b, k] columns of `ids`, ascending, -1 where fewer than k are left.
  """
  kept = (ids >= 0) & (hashes != own[:, None])
  order = np.argsort(~kept, axis=1, kind='stable')[:, :k]
  columns = np.where(np.take_along_axis(kept, order, axis=1), order, -1)
  pad = ((0, 0), (0, k - columns.shape[1]))
  return np.pad(columns, pad, constant_values=-1)


def take(
  values: np.ndarray, columns: np.ndarray, none: int | float
) -> np.ndarray:
  """Return values [b, n] at columns [b, k], `none` where a column is -1."""
  found = np.take_along_axis(values, np.maximum(columns, 0), axis=1)
  return np.where(columns >= 0, found, none)


def _count_by_document(
  shard_hashes: Iterable[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
  """Return the hashes of all documents, ascending, and their chunk counts."""
  pairs = [np.unique(hashes, return_counts=True) for hashes in shard_hashes]
  hashes, counts = map(np.concatenate, zip(*pairs, strict=True))
  order = np.argsort(hashes, kind='stable')
  hashes, counts = hashes[order], counts[order]
  # Documents with equal hashes count as one document.
  first = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
  return hashes[first], np.add.reduceat(counts, first)


class NeighborSearch:
  """Find k neighbors from other documents for batches of chunks.

  Attributes:
    num_exact: number of queries that the exact search repeated.
  """

  def __init__(
    self,
    searcher: searchers.Searcher,
    exact: searchers.Searcher,
    id_hash: sharded_array.Rows,
    k: int,
    max_fetch: int = 128,
  ):
    """Count the datastore's chunks by document, in 16 bytes for each document.

    Args:
      id_hash: [n] uint64 hash of the id of each chunk's document; no document
        is in two shards.
      max_fetch: largest number of candidates fetched from `searcher` for a query.
    """
    self._searcher, self._exact = searcher, exact
    self._id_hash, self._k = id_hash, k
    parts = [id_hash]
    if isinstance(id_hash, sharded_array.ShardedArray):
      parts = map(id_hash.shard, range(id_hash.num_shards))
    self._hashes, self._counts = _count_by_document(parts)
    self._num_chunks = len(id_hash)
    largest = int(self._counts.max())
    self._fetch = min(k + largest, max(max_fetch, k + 1), self._num_chunks)
    self.num_exact = 0

  def _own_chunks(self, own: np.ndarray) -> np.ndarray:
    """Return the number of chunks in each query's own document."""
    at = np.searchsorted(self._hashes, own)
    at = np.minimum(at, len(self._hashes) - 1)
    return np.where(self._hashes[at] == own, self._counts[at], 0)

  def search(
    self, vectors: np.ndarray, own: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and scores of the neighbors of each query.

    Args:
      vectors: [b, d] float32 queries.
      own: [b] hash of the id of each query's document.

    Returns:
      ids: [b, k] int64, -1 where the datastore has no more.
      scores: [b, k] float32, -inf there.
    """
    ids, scores = self._others(self._searcher, vectors, own, self._fetch)
    mine = self._own_chunks(own)
    reachable = np.minimum(self._k, self._num_chunks - mine)
    short = np.flatnonzero((ids >= 0).sum(1) < reachable)
    if len(short):
      self.num_exact += len(short)
      fetch = int(min(self._k + mine[short].max(), self._num_chunks))
      ids[short], scores[short] = self._others(
        self._exact, vectors[short], own[short], fetch
      )
    return ids, scores

  def _others(self, searcher, vectors, own, fetch):
    ids, scores = searcher.search(vectors, fetch)
    hashes = self._id_hash[np.maximum(ids, 0)]
    columns = other_columns(ids, hashes, own, self._k)
    scores = take(scores, columns, -np.inf).astype(np.float32)
    return take(ids, columns, -1).astype(np.int64), scores


def search_store(
  path: str | os.PathLike,
  fields: Mapping[str, Any],
  queries: chunks_lib.ChunkStore,
  vectors: store.Store,
  make_search: Callable[[], SearchFn],
  **share,
) -> 'NeighborStore | None':
  """Write the neighbors of every chunk; resumes at the first missing shard.

  Args:
    fields: JSON fields that determine every neighbor; 'k' among them.
    make_search: makes the search; called only where a shard is missing.

  Returns:
    The published store, or None while other processes still have work.
  """
  search = functools.cache(make_search)
  counts, k = queries.store.rows('document'), fields['k']

  def find(i, progress):
    ids = np.full((counts[i], k), -1, np.int64)
    scores = np.full((counts[i], k), -np.inf, np.float32)
    for rows in _batches(counts[i]):
      found = _search_rows(search(), queries, vectors, i, rows)
      ids[rows], scores[rows] = found
      if progress:
        progress(rows.stop, counts[i])
    return {'ids': ids, 'scores': scores}

  built = shards.build_store(path, KIND, fields, counts, find, **share)
  return None if built is None else NeighborStore(path)


def _batches(num_rows: int) -> Iterator[slice]:
  for low in range(0, num_rows, _QUERY_BATCH):
    yield slice(low, min(low + _QUERY_BATCH, num_rows))


def build_neighbor_store(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  vectors: store.Store,
  datastore: chunks_lib.ChunkStore,
  datastore_vectors: store.Store,
  index: index_lib.Index,
  *,
  k: int,
  **share,
) -> 'NeighborStore | None':
  """Find the k neighbors of every chunk of `queries` in a datastore.

  Returns:
    The published store, or None while other processes still have work.

  Raises:
    ValueError: when vectors and chunks do not belong together.
  """
  vectors_lib.check_chunks(vectors, queries)
  vectors_lib.check_chunks(datastore_vectors, datastore)
  fields = {**_fields(queries, vectors, datastore, index), 'k': k}
  make = functools.cache(
    lambda: _neighbor_search(index, datastore, datastore_vectors, k)
  )
  found = search_store(
    path, fields, queries, vectors, lambda: make().search, **share
  )
  if make.cache_info().currsize:
    logging.info(
      'An exact search repeated %d of %d queries.',
      make().num_exact,
      queries.num_chunks,
    )
  return found


def _fields(queries, vectors, datastore, index) -> dict[str, str]:
  return {
    'queries': queries.fingerprint,
    'vectors': vectors.fingerprint,
    'datastore': datastore.fingerprint,
    'index': index.fingerprint,
  }


def _neighbor_search(index, datastore, datastore_vectors, k):
  searcher = index.searcher
  if searcher.num_vectors != datastore.num_chunks:
    raise ValueError(
      f'The index holds {searcher.num_vectors} vectors, the datastore '
      f'{datastore.path} {datastore.num_chunks} chunks; they must be the same.'
    )
  exact = searchers.exact_of(searcher, datastore_vectors.array('vectors'))
  return NeighborSearch(searcher, exact, datastore.id_hash, k)


def _search_rows(search, queries, vectors, shard, rows):
  block = np.asarray(vectors.shard(shard, 'vectors')[rows], np.float32)
  own = np.asarray(queries.store.shard(shard, 'id_hash')[rows])
  return search(block, own)


def validate(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  vectors: store.Store,
  datastore: chunks_lib.ChunkStore,
  datastore_vectors: store.Store,
  index: index_lib.Index,
  *,
  fraction: float,
  seed: int = 0,
) -> int:
  """Recompute a sample of the neighbors and compare it with the stored ones.

  Args:
    path: neighbor store made by `build_neighbor_store` from the next five.
    fraction: share of query batches to recompute; at least one batch is.

  Raises:
    ValueError: when the store was made from other data, or for the first chunk
      whose neighbors or scores differ.
  """
  neighbors = NeighborStore(path)
  stored = neighbors.store
  made_from = _fields(queries, vectors, datastore, index)
  for name, want in made_from.items():
    if stored.fields[name] != want:
      raise ValueError(
        f'{path}: made with {name} {stored.fields[name]}, expected {want}; '
        'remove the folder and run the stage again.'
      )
  search = _neighbor_search(
    index, datastore, datastore_vectors, neighbors.num_neighbors
  ).search
  batches = [
    (shard, rows)
    for shard, count in enumerate(stored.rows('ids'))
    for rows in _batches(count)
  ]
  chosen = np.random.default_rng(seed).permutation(len(batches))
  compared = 0
  for b in chosen[: max(1, round(fraction * len(batches)))]:
    shard, rows = batches[b]
    ids, scores = _search_rows(search, queries, vectors, shard, rows)
    differs = (ids != stored.shard(shard, 'ids')[rows]).any(1)
    stored_scores = stored.shard(shard, 'scores')[rows]
    close = np.isclose(scores, stored_scores, _SCORE_RTOL, _SCORE_ATOL)
    differs |= ~close.all(1)
    if differs.any():
      row = rows.start + int(np.flatnonzero(differs)[0])
      raise ValueError(
        f'{path}: shard {shard}, row {row}: recomputed neighbors or scores '
        'differ from the stored ones; remove the folder and run the stage again.'
      )
    compared += len(ids)
  return compared


class NeighborStore:
  """Memory-mapped neighbors of a chunk store.

  Attributes:
    num_neighbors: K, neighbors kept for each chunk.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    queries: chunks_lib.ChunkStore | None = None,
    datastore: chunks_lib.ChunkStore | None = None,
  ):
    """Open the store, and compare it with its chunks where they are given.

    Raises:
      FileNotFoundError: when there is no store.
      ValueError: when it is of other queries or of another datastore.
    """
    self.store = store.Store.open(path, KIND)
    self.path = self.store.path
    self.num_neighbors = self.store.fields['k']
    for role, given in (('queries', queries), ('datastore', datastore)):
      found = self.store.fields[role]
      if given is not None and found != given.fingerprint:
        raise ValueError(
          f'{path}: made for {role} {found}, but {given.path} is '
          f'{given.fingerprint}; find the neighbors again.'
        )
    self._ids = self.store.array('ids')
    if datastore is not None:
      self._ids = self._ids.within(-1, datastore.num_chunks)
    self._scores = self.store.array('scores')

  def __len__(self) -> int:
    return len(self._ids)

  def ids(self, chunk_ids: np.ndarray) -> np.ndarray:
    """Datastore chunk ids, best first: [..., K] int64, -1 for none."""
    return self._ids[np.asarray(chunk_ids)]

  def scores(self, chunk_ids: np.ndarray) -> np.ndarray:
    """Their scores: [..., K] float32, -inf for none."""
    return self._scores[np.asarray(chunk_ids)]
