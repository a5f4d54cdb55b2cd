# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Precomputed nearest neighbors of every chunk, as training reads them."""

import os

import numpy as np

from retrieval.store import array_store
from retrieval.text import chunks as chunks_lib

KIND = 'neighbors'


class NeighborStore:
  """Memory-mapped neighbors of a chunk store.

  Attributes:
    num_neighbors: K, neighbors of each chunk.
    unit: of the scores, as of `retriever.Retriever`.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    queries: chunks_lib.ChunkStore | None = None,
    datastore: chunks_lib.ChunkStore | None = None,
  ):
    """Open the store, and compare it with its chunks unless they are None.

    Raises:
      FileNotFoundError: when there is no store.
      ValueError: when it is of other queries or of another datastore.
    """
    self.store = array_store.Store.open(path, KIND)
    self.path = self.store.path
    self.num_neighbors = self.store.fields['k']
    self.unit = self.store.meta.get('unit', 'score')
    chunks = {'queries': queries, 'datastore': datastore}
    self.store.check_made_of(
      **{role: x.fingerprint for role, x in chunks.items() if x is not None}
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
