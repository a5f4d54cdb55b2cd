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
from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.searchers import subset as subset_lib
from retrieval.store import array_store
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
    vectors: array_store.Store,
    datastore: chunks_lib.ChunkStore,
    datastore_vectors: array_store.Store,
    *,
    metric: str,
    share: float,
    seed: int = 0,
  ):
    """Take the vectors of the queries and of the whole datastore.

    Args:
      metric: 'squared_l2' or 'dot_product'.
    """
    rows = datastore_vectors.array('vectors')
    self._dense = retriever_lib.Dense(
      datastore,
      searchers.ExactSearcher(rows, metric, check=False),
      vectors=lambda _: vectors,
    )
    self._datastore, self._share, self._seed = datastore, share, seed
    self.unit = self._dense.unit
    prints = vectors.fingerprint, datastore_vectors.fingerprint
    self.fingerprint = f'exact {metric} {prints} share {share} seed {seed}'

  @functools.cached_property
  def _subset(self) -> subset_lib.Subset:
    mask = np.zeros(len(self._datastore), bool)
    mask[chunks_of_part(self._datastore, self._share, self._seed)] = True
    return subset_lib.Subset(mask)

  def search(
    self, queries: queries_lib.ChunkQueries, k: int
  ) -> queries_lib.Hits:
    """See `retriever.Retriever`; ids count rows of the whole datastore.

    Raises:
      ValueError: for a share out of range, or one that leaves no document.
    """
    return self._dense.search(queries.among(self._subset), k)
