# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Precomputed nearest neighbors of every chunk.

Borgeaud et al. 2021, section 2.2: neighbors from the document of the chunk
itself are excluded. The index is asked for more than is kept; rows that the
exclusion leaves short are searched again, exactly, so that the filter loses
nothing. Documents are compared by the hash of their id, so the chunks that ask
and the datastore that answers may come from different token stores.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import os
from typing import Protocol
from typing import runtime_checkable

from absl import logging
from jaxtyping import Float
from jaxtyping import Int
from jaxtyping import UInt64
import numpy as np

from retrieval import searchers
from retrieval.index import index as index_lib
from retrieval.store import store
from retrieval.text import chunks as chunks_lib

KIND = 'neighbors'
_QUERY_BATCH = 1024
# Float32 sums in another order, as another machine may take them.
_SCORE_RTOL, _SCORE_ATOL = 1e-5, 1e-5


@runtime_checkable
class Datastore(Protocol):
  """What the search for neighbors asks of chunks: `ChunkStore`, or a part of one.

  Attributes:
    num_chunks: how many there are.
  """

  num_chunks: int

  def document_hashes(self, ids: np.ndarray) -> np.ndarray:
    """Hash of the id of each chunk's document: [...] uint64."""
    ...

  def shard_hashes(self) -> Iterator[np.ndarray]:
    """The same shard by shard, no document in two of them."""
    ...


def keep_others(
  ids: Int[np.ndarray, 'b fetched'],
  scores: Float[np.ndarray, 'b fetched'],
  own: UInt64[np.ndarray, ' b'],
  datastore: Datastore,
  k: int,
) -> tuple[Int[np.ndarray, 'b k'], Float[np.ndarray, 'b k']]:
  """Drops the neighbors of a query's own document and keeps the best k.

  Args:
    ids: [b, fetched] chunk ids, best first, -1 where there is none.
    scores: [b, fetched] their scores.
    own: [b] hash of the id of each query's document.
    datastore: the chunks that `ids` names.
    k: how many to keep.

  Returns:
    ids: [b, k] int64, -1 where fewer than k are left.
    scores: [b, k] float32, -inf there.
  """
  found = ids >= 0
  hashes = datastore.document_hashes(np.where(found, ids, 0))
  keep = found & (hashes != own[:, None])
  order = np.argsort(~keep, axis=1, kind='stable')[:, :k]
  keep = np.take_along_axis(keep, order, 1)
  ids = np.where(keep, np.take_along_axis(ids, order, 1), -1)
  scores = np.where(keep, np.take_along_axis(scores, order, 1), -np.inf)
  pad = ((0, 0), (0, k - ids.shape[1]))
  return (
    np.pad(ids.astype(np.int64), pad, constant_values=-1),
    np.pad(scores.astype(np.float32), pad, constant_values=-np.inf),
  )


def _count_by_document(
  shard_hashes: Iterable[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
  """Hashes of the documents' ids, ascending, and the chunks of each."""
  # No document spans two shards, so what is kept of a shard is its documents.
  shards = [np.unique(hashes, return_counts=True) for hashes in shard_hashes]
  hashes, counts = (
    np.concatenate(parts) for parts in zip(*shards, strict=True)
  )
  order = np.argsort(hashes, kind='stable')
  hashes, counts = hashes[order], counts[order]
  # Two documents whose hashes are equal count as one, as they do elsewhere.
  first = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
  return hashes[first], np.add.reduceat(counts, first)


class NeighborSearch:
  """Finds k neighbors of other documents for batches of chunks.

  Attributes:
    num_exact: rows that had to be searched again, exactly.
  """

  def __init__(
    self,
    searcher: searchers.Searcher,
    exact: searchers.Searcher,
    datastore: Datastore,
    k: int,
    max_fetch: int = 128,
  ):
    """Counts the datastore's chunks by document.

    That costs 16 bytes of memory for each document, about four times as much
    while they are counted, and one shard's chunks at a time.

    Args:
      searcher: the published index.
      exact: exact search over the same vectors.
      datastore: the chunks behind the vectors.
      k: neighbors to keep.
      max_fetch: most candidates asked of `searcher` for one query.
    """
    self._searcher, self._exact = searcher, exact
    self._datastore, self._k = datastore, k
    self._hashes, self._counts = _count_by_document(datastore.shard_hashes())
    self._num_chunks = datastore.num_chunks
    largest = int(self._counts.max())
    self._fetch = min(k + largest, max(max_fetch, k + 1), self._num_chunks)
    self.num_exact = 0

  def _own_chunks(self, own: np.ndarray) -> np.ndarray:
    """How many chunks of its own document each query has to pass over."""
    at = np.searchsorted(self._hashes, own)
    at = np.minimum(at, len(self._hashes) - 1)
    return np.where(self._hashes[at] == own, self._counts[at], 0)

  def search(
    self, vectors: np.ndarray, own: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Searches.

    Args:
      vectors: [b, d] float32 queries.
      own: [b] hash of the id of each query's document.

    Returns:
      ids: [b, k] int64, -1 where the datastore has no more.
      scores: [b, k] float32.
    """
    ids, scores = self._searcher.search(vectors, self._fetch)
    ids, scores = keep_others(ids, scores, own, self._datastore, self._k)
    mine = self._own_chunks(own)
    reachable = np.minimum(self._k, self._num_chunks - mine)
    short = np.flatnonzero((ids >= 0).sum(1) < reachable)
    if len(short):
      self.num_exact += len(short)
      fetch = int(min(self._k + mine[short].max(), self._num_chunks))
      again = self._exact.search(vectors[short], fetch)
      ids[short], scores[short] = keep_others(
        *again, own[short], self._datastore, self._k
      )
    return ids, scores


def build_neighbor_store(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  vectors: store.Store,
  datastore: chunks_lib.ChunkStore,
  datastore_vectors: store.Store,
  index: index_lib.Index,
  *,
  k: int,
  process_index: int = 0,
  process_count: int = 1,
  progress: Callable[[int, int], None] | None = None,
) -> 'NeighborStore | None':
  """Finds the neighbors of every chunk; resumes at the first missing shard.

  Args:
    path: where the neighbors will stand.
    queries: the chunks that ask.
    vectors: their vectors.
    datastore: the chunks that answer.
    datastore_vectors: their vectors, for exact search.
    index: the published index of those vectors.
    k: neighbors for each chunk.
    process_index: number of this process.
    process_count: how many processes share the shards.
    progress: called with (chunks done, chunks in all).

  Returns:
    The published store, or None while other processes still have work.

  Raises:
    ValueError: when vectors and chunks do not belong together.
  """
  _check_pair(queries, vectors)
  _check_pair(datastore, datastore_vectors)
  fields = {**_fields(queries, vectors, datastore, index), 'k': k}
  writer = store.StoreWriter(path, KIND, fields)
  if writer.published:
    return NeighborStore(path)
  search = _neighbor_search(index, datastore, datastore_vectors, k)
  counts = queries.store.rows('document')
  todo = writer.missing(len(counts))
  mine = [i for i in todo if i % process_count == process_index]
  total, done = sum(counts[i] for i in mine), 0
  for i in mine:
    parts = []
    for low in range(0, counts[i], _QUERY_BATCH):
      rows = slice(low, min(low + _QUERY_BATCH, counts[i]))
      parts.append(_search_rows(search, queries, vectors, i, rows))
      done += rows.stop - rows.start
      if progress:
        progress(done, total)
    ids = [np.zeros((0, k), np.int64), *(p[0] for p in parts)]
    scores = [np.zeros((0, k), np.float32), *(p[1] for p in parts)]
    writer.write(
      i, {'ids': np.concatenate(ids), 'scores': np.concatenate(scores)}
    )
  logging.info(
    '%d of %d chunks were searched again, exactly.', search.num_exact, total
  )
  if writer.missing(len(counts)):
    return None
  writer.publish(len(counts))
  return NeighborStore(path)


def _fields(queries, vectors, datastore, index) -> dict[str, str]:
  return {
    'queries': queries.fingerprint,
    'vectors': vectors.fingerprint,
    'datastore': datastore.fingerprint,
    'index': index.fingerprint,
  }


def _check_pair(chunks: chunks_lib.ChunkStore, vectors: store.Store) -> None:
  if vectors.fields['chunks'] != chunks.fingerprint:
    raise ValueError(
      f'{vectors.path}: vectors of chunks {vectors.fields["chunks"]}, but '
      f'{chunks.path} is {chunks.fingerprint}; embed these chunks first.'
    )


def _neighbor_search(index, datastore, datastore_vectors, k):
  searcher = index.searcher
  if searcher.num_vectors != datastore.num_chunks:
    raise ValueError(
      f'The index holds {searcher.num_vectors} vectors, the datastore '
      f'{datastore.path} {datastore.num_chunks} chunks; they must be the same.'
    )
  exact = searcher  # of which the devices hold one copy, not two
  if not isinstance(searcher, searchers.ExactSearcher):
    # The index has checked these very vectors when it was built.
    exact = searchers.ExactSearcher(
      datastore_vectors.array('vectors'), searcher.metric, check=False
    )
  return NeighborSearch(searcher, exact, datastore, k)


def _search_rows(search, queries, vectors, shard, rows):
  block = np.asarray(vectors.shard(shard, 'vectors')[rows], np.float32)
  own = np.asarray(queries.store.shard(shard, 'id_hash')[rows])
  return search.search(block, own)


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
  """Recomputes a sample of the neighbors and compares.

  Args:
    path: the neighbor store.
    queries: as for `build_neighbor_store`, like the four that follow.
    vectors: vectors of `queries`.
    datastore: the chunks that answer.
    datastore_vectors: their vectors.
    index: the published index.
    fraction: share of query batches to recompute, at least one of them.
    seed: of the sample.

  Returns:
    How many chunks were compared.

  Raises:
    ValueError: when the store was made from something else; naming the first
      chunk whose neighbors or scores differ.
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
  )
  batches = [
    (shard, slice(low, min(low + _QUERY_BATCH, rows)))
    for shard, rows in enumerate(stored.rows('ids'))
    for low in range(0, rows, _QUERY_BATCH)
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
  """The neighbors of a chunk store, memory-mapped.

  Attributes:
    store: the store beneath.
    num_neighbors: K, neighbors kept for each chunk.
  """

  def __init__(self, path: str | os.PathLike):
    self.store = store.Store.open(path, KIND)
    self.path = self.store.path
    self.num_neighbors = self.store.fields['k']
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
