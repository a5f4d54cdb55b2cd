# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the nearest neighbors of every chunk, for a `neighbor_store`.

Borgeaud et al. 2021, section 2.2. Neighbors from a chunk's document are excluded;
see `exclude`.
"""

import os
from typing import Any

import numpy as np

from retrieval.index import neighbor_store
from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.store import executors, shards
from retrieval.text import chunks as chunks_lib

QUERY_BATCH = 1024


def build_neighbor_store(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  datastore: chunks_lib.ChunkStore,
  retriever: retriever_lib.Retriever | executors.Lazy,
  *,
  k: int,
  **how: Any,
) -> neighbor_store.NeighborStore:
  """Find the k neighbors of every chunk of `queries` in a datastore.

  Resumes at the first missing shard.

  Args:
    how: executor and progress of `shards.build_store`.
  """
  fields = {
    'queries': queries.fingerprint,
    'datastore': datastore.fingerprint,
    'index': retriever.fingerprint,
    'k': k,
  }
  counts = queries.store.rows('document')
  batch = getattr(retriever, 'query_batch', None) or QUERY_BATCH

  def find(i, done):
    ids = np.full((counts[i], k), -1, np.int64)
    scores = np.full((counts[i], k), -np.inf, np.float32)
    for low in range(0, counts[i], batch):
      rows = slice(low, min(low + batch, counts[i]))
      asked = queries_lib.ChunkQueries(queries, queries.ids(i, rows))
      ids[rows], scores[rows] = retriever.search(asked, k)
      if done:
        done(rows.stop, counts[i])
    return {'ids': ids, 'scores': scores}

  meta = {'unit': retriever.unit}
  shards.build_store(
    path, neighbor_store.KIND, fields, counts, find, meta=meta, **how
  )
  return neighbor_store.NeighborStore(path)
