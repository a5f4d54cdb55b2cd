# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of every passage: the keys of RETRO's database (section 2.2).

Vectors of an earlier index are reused: only texts that it lacks are embedded.
"""

from collections.abc import Callable, Mapping
import os
from typing import Any

import numpy as np

from retrieval.index import index_config as index_config_lib
from retrieval.store import array_store, shards
from retrieval.text import passages as passages_lib

KIND = 'vectors'
_AT_ONCE = 4096  # passages


class KnownVectors:
  """Vectors of earlier passages, by the hash of their text, in 16 bytes each.

  Attributes:
    num_reused: texts whose vectors were copied.
    num_embedded: texts that were embedded.
  """

  def __init__(
    self,
    passages: passages_lib.Passages,
    vectors: array_store.Store,
    made_of: Mapping[str, str],
  ):
    """Hash the earlier texts.

    Args:
      made_of: fields of `vectors`: the passages, and the embedder of the new texts.

    Raises:
      ValueError: when the vectors were made of something else.
    """
    vectors.check_made_of(**made_of)
    self._vectors = vectors.array('vectors')
    ids = range(len(passages))
    parts = (np.asarray(ids[i : i + _AT_ONCE]) for i in ids[::_AT_ONCE])
    hashes = np.concatenate([*map(passages.hashes, parts)])
    self._rows = np.argsort(hashes, kind='stable')
    self._hashes = hashes[self._rows]
    self.num_reused = self.num_embedded = 0

  def find(self, hashes: np.ndarray) -> np.ndarray:
    """Return the earlier passage of each hash [n] uint64, or -1 for a new text."""
    places = np.searchsorted(self._hashes, hashes)
    places = np.minimum(places, len(self._hashes) - 1)
    return np.where(self._hashes[places] == hashes, self._rows[places], -1)

  def fill(
    self,
    passages: passages_lib.Passages,
    ids: np.ndarray,
    embed: Callable[[np.ndarray, shards.Progress | None], np.ndarray],
    progress: shards.Progress | None = None,
  ) -> np.ndarray:
    """Return the vectors [n, d] float32 of passages [n], copied or embedded.

    Args:
      embed: (ids [m], progress) -> vectors [m, d] float32 of new passages.
    """
    rows = self.find(passages.hashes(ids))
    known, total = rows >= 0, len(rows)
    reused = int(known.sum())
    vectors = np.empty((total, self._vectors.shape[1]), np.float32)
    vectors[known] = self._vectors[rows[known]]
    if progress:
      progress(reused, total)
    if reused < total:
      shifted = shards.shifted(progress, reused, total)
      vectors[~known] = embed(ids[~known], shifted)
    self.num_reused += reused
    self.num_embedded += total - reused
    return vectors


def index_config(
  config: index_config_lib.IndexConfig, vectors: array_store.Store
) -> index_config_lib.IndexConfig:
  """Return the settings of an index of some vectors, for the embedder's metric."""
  return config.with_metric(vectors.meta.get('metric', 'squared_l2'))


def build_vector_store(
  path: str | os.PathLike,
  passages: passages_lib.Passages,
  embedder: Any,
  *,
  known: KnownVectors | None = None,
  **how: Any,
) -> array_store.Store:
  """Embed the text of every passage; resumes at the first missing shard.

  Args:
    embedder: an `embedders.Embedder`.
    known: vectors of earlier passages by the same embedder.
    how: executor and progress of `shards.build_store`.
  """
  fields = {
    'passages': passages.fingerprint,
    'embedder': embedder.fingerprint,
    'dtype': 'float32',
  }
  counts = passages.store.rows('document')
  ends = np.cumsum(counts)

  def embed(ids, done):
    texts = passages.search_texts(ids)
    vectors = embedder.embed_texts(texts, progress=done)
    return vectors.reshape(len(texts), embedder.dimension)  # also of no texts

  def embed_shard(i, done):
    ids = np.arange(ends[i] - counts[i], ends[i])
    if known:
      vectors = known.fill(passages, ids, embed, done)
    else:
      vectors = embed(ids, done)
    return {'vectors': vectors.astype(np.float32)}

  return shards.build_store(
    path,
    KIND,
    fields,
    counts,
    embed_shard,
    meta={'dimension': embedder.dimension, 'metric': embedder.metric},
    **how,
  )
