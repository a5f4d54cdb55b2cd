# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the nearest neighbors of every chunk, for a `neighbor_store`.

Borgeaud et al. 2021, section 2.2. Neighbors from a chunk's own document are excluded;
see `exclude`.
"""

from collections.abc import Callable, Mapping
import functools
import os
from typing import Any

import numpy as np

from retrieval.index import neighbor_store
from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.store import executors, shards
from retrieval.text import chunks as chunks_lib

QUERY_BATCH = 1024

# (shard, rows) of query chunks -> their neighbors
SearchFn = Callable[[int, slice], queries_lib.Found]


def search_store(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  fields: Mapping[str, Any],
  make_search: Callable[[], SearchFn],
  *,
  unit: str,
  batch: int = QUERY_BATCH,
  executor: executors.Executor | None = None,
  progress: shards.Progress | None = None,
) -> neighbor_store.NeighborStore:
  """Write the neighbors of every chunk; resumes at the first missing shard.

  Args:
    fields: JSON fields that determine every neighbor; 'k' among them.
    make_search: makes the search, once in each process where a shard is missing.
    unit: of the scores.
    batch: chunks of a search.
    executor: where the shards are made; None is this process.
  """
  search = executors.Lazy(make_search)
  counts, k = queries.store.rows('document'), fields['k']

  def find(i, done):
    ids = np.full((counts[i], k), -1, np.int64)
    scores = np.full((counts[i], k), -np.inf, np.float32)
    for low in range(0, counts[i], batch):
      rows = slice(low, min(low + batch, counts[i]))
      ids[rows], scores[rows] = search(i, rows)
      if done:
        done(rows.stop, counts[i])
    return {'ids': ids, 'scores': scores}

  shards.build_store(
    path,
    neighbor_store.KIND,
    fields,
    counts,
    find,
    executor=executor,
    progress=progress,
    meta={'unit': unit},
  )
  return neighbor_store.NeighborStore(path)


def build_neighbor_store(
  path: str | os.PathLike,
  queries: chunks_lib.ChunkStore,
  datastore: chunks_lib.ChunkStore,
  retriever: retriever_lib.Retriever,
  *,
  k: int,
  **how,
) -> neighbor_store.NeighborStore:
  """Find the k neighbors of every chunk of `queries` in a datastore.

  Args:
    how: executor and progress of `search_store`.
  """
  fields = {
    'queries': queries.fingerprint,
    'datastore': datastore.fingerprint,
    'index': retriever.fingerprint,
    'k': k,
  }

  def make():
    return functools.partial(of_chunks, retriever, queries, k=k)

  batch = getattr(retriever, 'query_batch', None) or QUERY_BATCH
  return search_store(
    path, queries, fields, make, unit=retriever.unit, batch=batch, **how
  )


def of_chunks(
  retriever: retriever_lib.Retriever,
  queries: chunks_lib.ChunkStore,
  shard: int,
  rows: slice,
  k: int,
) -> queries_lib.Found:
  """Return ids and scores [b, k] of the neighbors of rows of a shard of chunks."""
  ids = queries.ids(shard, rows)
  return retriever.search(queries_lib.ChunkQueries(queries, ids), k)
