# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors in random parts of a datastore, each part within the larger ones.

For the effect of the datastore's size (Borgeaud et al. 2021, figure 1 and Table
14). Whole documents belong to a part or not, by the hash of their id and a seed
alone, so parts are nested. Each part is searched exactly, for itself: that of the
neighbors which are left of the whole would be too few.
"""

from collections.abc import Callable
import os

from jaxtyping import Float
from jaxtyping import Int
import numpy as np

from retrieval import searchers
from retrieval.index import neighbors as neighbors_lib
from retrieval.store import store
from retrieval.text import chunks as chunks_lib

_QUERY_BATCH = 1024


def document_ranks(id_hash: np.ndarray, seed: int = 0) -> np.ndarray:
  """A number in [0, 1) for each document, uniform and independent of the split.

  Args:
    id_hash: [...] uint64 hashes of documents' ids.
    seed: of the numbers.

  Returns:
    [...] float64. A part of share s consists of those below s.
  """
  state = np.random.SeedSequence(seed).generate_state(2, np.uint64)
  x = np.asarray(id_hash, np.uint64) ^ state[0]
  for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
    x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
  x = (x ^ (x >> np.uint64(31))) ^ state[1]
  return (x >> np.uint64(11)) / float(1 << 53)


def chunks_of_part(
  datastore: chunks_lib.ChunkStore, share: float, seed: int = 0
) -> Int[np.ndarray, ' n']:
  """The chunks of a part of a datastore.

  Args:
    datastore: all of it.
    share: of its documents, above 0 and at most 1; 1 is all of it.
    seed: of the choice.

  Returns:
    [n] int64 chunk ids, ascending.

  Raises:
    ValueError: for a share out of range, or one that leaves no document.
  """
  if not 0 < share <= 1:
    raise ValueError(f'share {share}: expected above 0 and at most 1.')
  parts, base = [], 0
  for hashes in datastore.shard_hashes():
    chosen = np.flatnonzero(document_ranks(hashes, seed) < share)
    parts.append(base + chosen)
    base += len(hashes)
  ids = np.concatenate(parts)
  if not len(ids):
    raise ValueError(
      f'{datastore.path}: a share of {share} of its {base:,} chunks leaves no '
      'document.'
    )
  return ids


class _Rows:
  """Some rows of an array, read when they are asked for."""

  def __init__(self, array, ids: np.ndarray):
    self._array, self._ids = array, ids
    self.shape, self.dtype = (len(ids), *array.shape[1:]), array.dtype

  def __len__(self) -> int:
    return len(self._ids)

  def __getitem__(self, key) -> np.ndarray:
    return self._array[self._ids[key]]


class _Part:
  """What `NeighborSearch` asks of a datastore, of some chunks alone."""

  def __init__(self, datastore: chunks_lib.ChunkStore, ids: np.ndarray):
    self._datastore, self._ids = datastore, ids
    self.num_chunks = len(ids)

  def document_hashes(self, ids: np.ndarray) -> np.ndarray:
    return self._datastore.document_hashes(self._ids[np.asarray(ids)])

  def shard_hashes(self):
    yield self._datastore.document_hashes(self._ids)


class _PartSearch:
  """Finds neighbors among some chunks, and names them as the datastore does."""

  def __init__(self, datastore, vectors, ids: np.ndarray, metric: str, k: int):
    self._ids = ids
    rows = _Rows(vectors.array('vectors'), ids)
    exact = searchers.ExactSearcher(rows, metric, check=False)
    part = _Part(datastore, ids)
    self._search = neighbors_lib.NeighborSearch(exact, exact, part, k)

  def search(
    self, vectors: Float[np.ndarray, 'b d'], own: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    found, scores = self._search.search(vectors, own)
    ids = np.where(found >= 0, self._ids[np.maximum(found, 0)], -1)
    return ids, scores


def build_part_neighbors(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  vectors: store.Store,
  datastore: chunks_lib.ChunkStore,
  datastore_vectors: store.Store,
  *,
  metric: str,
  share: float,
  k: int,
  seed: int = 0,
  progress: Callable[[int, int], None] | None = None,
) -> neighbors_lib.NeighborStore:
  """Finds every chunk's neighbors in a part of a datastore, exactly.

  Resumes at the first missing shard.

  Args:
    path: where the neighbors will stand.
    queries: the chunks that ask.
    vectors: their vectors.
    datastore: all of the datastore; ids are its own.
    datastore_vectors: its vectors.
    metric: 'squared_l2' or 'dot_product'.
    share: of the datastore's documents.
    k: neighbors for each chunk.
    seed: of the part.
    progress: called with (chunks done, chunks in all).

  Returns:
    The published store.

  Raises:
    ValueError: for a share out of range.
  """
  fields = {
    'queries': queries.fingerprint,
    'vectors': vectors.fingerprint,
    'datastore': datastore.fingerprint,
    'index': f'exact {metric} {datastore_vectors.fingerprint}',
    'share': share,
    'seed': seed,
    'k': k,
  }
  writer = store.StoreWriter(path, neighbors_lib.KIND, fields)
  if writer.published:
    return neighbors_lib.NeighborStore(path)
  ids = chunks_of_part(datastore, share, seed)
  search = _PartSearch(datastore, datastore_vectors, ids, metric, k)
  counts = queries.store.rows('document')
  todo = writer.missing(len(counts))
  total, done = sum(counts[i] for i in todo), 0
  for i in todo:
    found = np.full((counts[i], k), -1, np.int64)
    scores = np.full((counts[i], k), -np.inf, np.float32)
    for low in range(0, counts[i], _QUERY_BATCH):
      rows = slice(low, min(low + _QUERY_BATCH, counts[i]))
      block = np.asarray(vectors.shard(i, 'vectors')[rows], np.float32)
      own = np.asarray(queries.store.shard(i, 'id_hash')[rows])
      found[rows], scores[rows] = search.search(block, own)
      done += rows.stop - rows.start
      if progress:
        progress(done, total)
    writer.write(i, {'ids': found, 'scores': scores})
  writer.publish(len(counts))
  return neighbors_lib.NeighborStore(path)
