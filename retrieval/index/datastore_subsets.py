# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors in random, nested parts of a datastore.

They measure the effect of the datastore's size (Borgeaud et al. 2021, figure 1 and
Table 14). A part holds whole documents, chosen by the hash of their id and a seed,
so a larger part contains a smaller one. An exact search of each part finds its
neighbors; filtering the neighbors in the whole datastore would leave too few.
"""

import functools

from jaxtyping import Int
import numpy as np

from retrieval import searchers
from retrieval.search import exclude, queries as queries_lib
from retrieval.searchers import base, kept as kept_lib
from retrieval.store import sharded_array, store
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


class PartRetriever:
  """Exact search of a part of a datastore, by the vectors of chunks."""

  def __init__(
    self,
    vectors: store.Store,
    datastore: chunks_lib.ChunkStore,
    datastore_vectors: store.Store,
    *,
    metric: str,
    share: float,
    seed: int = 0,
  ):
    """Take the vectors of the queries, and those of the whole datastore.

    Args:
      metric: 'squared_l2' or 'dot_product'.
    """
    self._vectors, self._datastore = vectors, datastore
    self._keys, self._metric = datastore_vectors, metric
    self._share, self._seed = share, seed
    self._part = functools.cache(self._open)
    self.unit = base.UNITS[metric]
    prints = vectors.fingerprint, datastore_vectors.fingerprint
    self.fingerprint = f'exact {metric} {prints} share {share} seed {seed}'

  def _open(self, k: int) -> tuple[np.ndarray, exclude.OtherDocuments]:
    """Return the chunk ids of the part, and the search of its rows."""
    ids = chunks_of_part(self._datastore, self._share, self._seed)
    rows = sharded_array.SelectedRows(self._keys.array('vectors'), ids)
    exact = searchers.ExactSearcher(rows, self._metric, check=False)
    hashes = self._datastore.document_hashes(ids)
    return ids, exclude.OtherDocuments(exact, lambda: exact, hashes, k)

  def search(
    self, queries: queries_lib.ChunkQueries, k: int
  ) -> queries_lib.Found:
    """See `retriever.Retriever`; the ids are those of the whole datastore.

    Raises:
      ValueError: for a share out of range, or one that leaves no document.
    """
    ids, part = self._part(k)
    asked = self._vectors.array('vectors')[queries.ids]
    found, scores = part.search(np.asarray(asked, np.float32), queries.own)
    return kept_lib.take(ids[None], found, -1), scores
