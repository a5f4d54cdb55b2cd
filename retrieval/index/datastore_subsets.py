# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors in random, nested parts of a datastore.

They measure the effect of the datastore's size (Borgeaud et al. 2021, figure 1 and
Table 14). A part holds whole documents, chosen by the hash of their id and a seed,
so a larger part contains a smaller one. An exact search of each part finds its
neighbors; filtering the neighbors in the whole datastore would leave too few.
"""

import os

from jaxtyping import Int
import numpy as np

from retrieval import searchers
from retrieval.index import neighbor_store, neighbors as neighbors_lib
from retrieval.search import exclude
from retrieval.searchers import base
from retrieval.store import sharded_array, shards, store
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
  hashes = datastore.id_hash
  parts = [
    base + np.flatnonzero(document_ranks(hashes.shard(i), seed) < share)
    for i, base in enumerate(hashes.offsets[:-1])
  ]
  ids = np.concatenate(parts)
  if not len(ids):
    raise ValueError(
      f'{datastore.path}: a share of {share} of its {len(hashes):,} chunks '
      'leaves no document.'
    )
  return ids


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
) -> neighbor_store.NeighborStore:
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
    rows = sharded_array.SelectedRows(datastore_vectors.array('vectors'), ids)
    exact = searchers.ExactSearcher(rows, metric, check=False)
    part = exclude.OtherDocuments(
      exact, lambda: exact, datastore.document_hashes(ids), k
    )

    def search(shard, rows):
      block = vectors.shard(shard, 'vectors')[rows]
      own = queries.store.shard(shard, 'id_hash')[rows]
      found, scores = part.search(
        np.asarray(block, np.float32), np.asarray(own)
      )
      return exclude.take(ids[None], found, -1), scores

    return search

  unit = base.UNITS[metric]
  return neighbors_lib.search_store(
    path, queries, fields, make, unit=unit, progress=progress
  )
