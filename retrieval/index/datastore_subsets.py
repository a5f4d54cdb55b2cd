# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors in random, nested parts of a datastore.

They measure the effect of the datastore's size (Borgeaud et al. 2021, figure 1 and
Table 14). A part holds whole documents, chosen by the hash of their id and a seed,
so a larger part contains a smaller one. An exact search of each part finds its
neighbors; filtering the neighbors in the whole datastore would leave too few.
"""

import os

from jaxtyping import Float, Int
import numpy as np

from retrieval import searchers
from retrieval.index import neighbors as neighbors_lib
from retrieval.store import shards, store
from retrieval.text import chunks as chunks_lib


def document_ranks(id_hash: np.ndarray, seed: int = 0) -> np.ndarray:
  """Return a uniform number in [0, 1) for each document, independent of the split.

  A part of share s holds the documents with a number below s.
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
  """Return the ascending chunk ids of a part with a share of the documents.

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
  """Lazily read rows of an array."""

  def __init__(self, array, ids: np.ndarray):
    self._array, self._ids = array, ids
    self.shape, self.dtype = (len(ids), *array.shape[1:]), array.dtype

  def __len__(self) -> int:
    return len(self._ids)

  def __getitem__(self, key) -> np.ndarray:
    return self._array[self._ids[key]]


class _Part:
  """The given chunks of a datastore as a `neighbors.Datastore`."""

  def __init__(self, datastore: chunks_lib.ChunkStore, ids: np.ndarray):
    self._datastore, self._ids = datastore, ids
    self.num_chunks = len(ids)

  def document_hashes(self, ids: np.ndarray) -> np.ndarray:
    return self._datastore.document_hashes(self._ids[np.asarray(ids)])

  def shard_hashes(self):
    yield self._datastore.document_hashes(self._ids)


class _PartSearch:
  """Exact search of the given chunks that returns the datastore's chunk ids."""

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
  progress: shards.Progress | None = None,
) -> neighbors_lib.NeighborStore:
  """Find every chunk's neighbors in a part of a datastore by exact search.

  Resumes at the first missing shard.

  Args:
    datastore: whole datastore, whose chunk ids the neighbors are.
    metric: 'squared_l2' or 'dot_product'.

  Raises:
    ValueError: for a share out of range, or one that leaves no document.
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

  def make():
    ids = chunks_of_part(datastore, share, seed)
    return _PartSearch(datastore, datastore_vectors, ids, metric, k)

  return neighbors_lib.search_store(
    path, fields, queries, vectors, make, progress=progress
  )
