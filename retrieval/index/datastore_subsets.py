# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors in random, nested parts of a datastore.

They measure the effect of the datastore's size (Borgeaud et al. 2021, figure 1 and
Table 14). A part holds whole documents, chosen by the hash of their id and a seed,
so a larger part contains a smaller one. An exact search of each part finds its
neighbors; filtering the neighbors in the whole datastore would leave too few.
"""

import numpy as np

from retrieval import searchers
from retrieval.search import retriever as retriever_lib
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


def part(
  datastore: chunks_lib.ChunkStore, share: float, seed: int = 0
) -> subset_lib.Subset:
  """Return the chunks of a part with a share of the documents.

  Raises:
    ValueError: for a share that leaves no document.
  """
  hashes = datastore.id_hash
  ranks = [
    document_ranks(hashes.shard(i), seed) for i in range(hashes.num_shards)
  ]
  mask = np.concatenate(ranks) < share
  if not mask.any():
    raise ValueError(
      f'{datastore.path}: a share of {share} of its {len(hashes):,} chunks '
      'leaves no document.'
    )
  return subset_lib.Subset(mask)


def part_retriever(
  vectors: array_store.Store,
  datastore: chunks_lib.ChunkStore,
  datastore_vectors: array_store.Store,
  *,
  metric: str,
  share: float,
  seed: int = 0,
) -> retriever_lib.Retriever:
  """Return the exact search of a `part`, by the vectors of chunks.

  Its ids count rows of the whole datastore.

  Args:
    vectors: of the queries.
    datastore_vectors: of the whole datastore.
    metric: 'squared_l2' or 'dot_product'.

  Raises:
    ValueError: as of `part`.
  """
  rows = datastore_vectors.array('vectors')
  dense = retriever_lib.Dense(
    datastore,
    searchers.ExactSearcher(rows, metric, check=False),
    vectors=lambda _: vectors,
  )
  prints = vectors.fingerprint, datastore_vectors.fingerprint
  fingerprint = f'exact {metric} {prints} share {share} seed {seed}'
  subset = part(datastore, share, seed)
  return retriever_lib.Among(dense, subset, fingerprint)
