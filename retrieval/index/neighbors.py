# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Precomputed nearest neighbors of every chunk.

Borgeaud et al. 2021, section 2.2: neighbors from a chunk's own document are
excluded. The search fetches more rows than are kept. An exact search repeats
the queries that the exclusion leaves short, so the exclusion loses no neighbor.
Documents are compared by the hash of their id, so queries and datastore may
come from different token stores.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
import os
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Int, UInt64
import numpy as np

from retrieval.store import executors, sharded_array, shards, store
from retrieval.text import chunks as chunks_lib

KIND = 'neighbors'
QUERY_BATCH = 1024
# Another machine may sum float32 in another order.
_SCORE_RTOL, _SCORE_ATOL = 1e-5, 1e-5

# ids [b, k] int64, -1 for none; scores [b, k] float32, -inf for none
Found = tuple[np.ndarray, np.ndarray]
# (shard, rows) of query chunks -> their neighbors
SearchFn = Callable[[int, slice], Found]


@runtime_checkable
class Source(Protocol):
  """A way to find neighbors, for stored chunks and for new text."""

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """Return JSON fields that determine the neighbors, with the datastore and k.

    Raises:
      ValueError: when the source cannot search for these chunks.
    """

  def of_chunks(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice, k: int
  ) -> Found:
    """Find the k nearest chunks of other documents for stored chunks."""

  def of_texts(self, texts: Sequence[str], k: int) -> Found:
    """Find the k nearest chunks of all documents; a blank text finds none."""


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


@runtime_checkable
class Finder(Protocol):
  """Rows for queries of some kind: vectors, as `searchers.Searcher`, or texts."""

  def search(self, queries: np.ndarray, k: int) -> Found:
    """Return ids [b, k] and scores [b, k], best first, -1 and -inf for none."""


class NeighborSearch:
  """Find k neighbors from other documents for batches of chunks.

  Attributes:
    num_exact: number of queries that the exact search repeated.
  """

  def __init__(
    self,
    searcher: Finder,
    exact: Finder,
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
    self, queries: np.ndarray, own: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and scores of the neighbors of each query.

    Args:
      queries: [b, ...] what the searchers take: vectors [b, d], or texts [b].
      own: [b] hash of the id of each query's document.

    Returns:
      ids: [b, k] int64, -1 where the datastore has no more.
      scores: [b, k] float32, -inf there.
    """
    ids, scores = self._others(self._searcher, queries, own, self._fetch)
    mine = self._own_chunks(own)
    reachable = np.minimum(self._k, self._num_chunks - mine)
    short = np.flatnonzero((ids >= 0).sum(1) < reachable)
    if len(short):
      self.num_exact += len(short)
      fetch = int(min(self._k + mine[short].max(), self._num_chunks))
      ids[short], scores[short] = self._others(
        self._exact, queries[short], own[short], fetch
      )
    return ids, scores

  def _others(self, searcher, queries, own, fetch):
    ids, scores = searcher.search(queries, fetch)
    hashes = self._id_hash[np.maximum(ids, 0)]
    columns = other_columns(ids, hashes, own, self._k)
    scores = take(scores, columns, -np.inf).astype(np.float32)
    return take(ids, columns, -1).astype(np.int64), scores


def search_store(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  fields: Mapping[str, Any],
  make_search: Callable[[], SearchFn],
  *,
  batch: int = QUERY_BATCH,
  executor: executors.Executor | None = None,
  progress: shards.Progress | None = None,
) -> 'NeighborStore':
  """Write the neighbors of every chunk; resumes at the first missing shard.

  Args:
    fields: JSON fields that determine every neighbor; 'k' among them.
    make_search: makes the search, once in each process where a shard is missing.
    batch: chunks of a search.
    executor: where the shards are made; None is this process.
  """
  search = executors.Lazy(make_search)
  counts, k = queries.store.rows('document'), fields['k']

  def find(i, done):
    ids = np.full((counts[i], k), -1, np.int64)
    scores = np.full((counts[i], k), -np.inf, np.float32)
    for rows in _batches(counts[i], batch):
      ids[rows], scores[rows] = search(i, rows)
      if done:
        done(rows.stop, counts[i])
    return {'ids': ids, 'scores': scores}

  shards.build_store(
    path, KIND, fields, counts, find, executor=executor, progress=progress
  )
  return NeighborStore(path)


def _batches(num_rows: int, size: int = QUERY_BATCH) -> Iterator[slice]:
  for low in range(0, num_rows, size):
    yield slice(low, min(low + size, num_rows))


def build_neighbor_store(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  datastore: chunks_lib.ChunkStore,
  source: Source,
  *,
  k: int,
  **how,
) -> 'NeighborStore':
  """Find the k neighbors of every chunk of `queries` in a datastore.

  Args:
    how: executor and progress of `search_store`.

  Raises:
    ValueError: when source and chunks do not belong together.
  """
  fields = {**_fields(queries, datastore, source), 'k': k}

  def make():
    return functools.partial(_search_rows, source, queries, k)

  batch = getattr(source, 'query_batch', QUERY_BATCH)
  return search_store(path, queries, fields, make, batch=batch, **how)


def _fields(queries, datastore, source) -> dict[str, Any]:
  return {
    'queries': queries.fingerprint,
    'datastore': datastore.fingerprint,
    **source.fields(queries),
  }


def _search_rows(source, queries, k, shard, rows):
  return source.of_chunks(queries, shard, rows, k)


def validate(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  datastore: chunks_lib.ChunkStore,
  source: Source,
  *,
  fraction: float,
  seed: int = 0,
) -> int:
  """Recompute a sample of the neighbors and compare it with the stored ones.

  Args:
    path: neighbor store made by `build_neighbor_store` from the next three.
    fraction: share of query batches to recompute; at least one batch is.

  Raises:
    ValueError: when the store was made from other data, or for the first chunk
      whose neighbors or scores differ.
  """
  neighbors = NeighborStore(path)
  stored = neighbors.store
  made_from = _fields(queries, datastore, source)
  for name, want in made_from.items():
    if stored.fields.get(name) != want:
      raise ValueError(
        f'{path}: made with {name} {stored.fields.get(name)}, expected {want}; '
        'remove the folder and run the stage again.'
      )
  batches = [
    (shard, rows)
    for shard, count in enumerate(stored.rows('ids'))
    for rows in _batches(count)
  ]
  chosen = np.random.default_rng(seed).permutation(len(batches))
  compared = 0
  for b in chosen[: max(1, round(fraction * len(batches)))]:
    shard, rows = batches[b]
    ids, scores = source.of_chunks(
      queries, shard, rows, neighbors.num_neighbors
    )
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
    self._scores = self.store.array('scores')

  def __len__(self) -> int:
    return len(self._ids)

  def ids(self, chunk_ids: np.ndarray) -> np.ndarray:
    """Datastore chunk ids, best first: [..., K] int64, -1 for none."""
    return self._ids[np.asarray(chunk_ids)]

  def scores(self, chunk_ids: np.ndarray) -> np.ndarray:
    """Their scores: [..., K] float32, -inf for none."""
    return self._scores[np.asarray(chunk_ids)]
