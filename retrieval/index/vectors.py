# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of every passage: the keys of RETRO's database (section 2.2)."""

import os

import numpy as np

from retrieval.index import index_config as index_config_lib, reuse
from retrieval.search import retriever as retriever_lib
from retrieval.store import array_store, executors, shards
from retrieval.text import passages as passages_lib

KIND = 'vectors'


def index_config(
  config: index_config_lib.IndexConfig, vectors: array_store.Store
) -> index_config_lib.IndexConfig:
  """Return the settings of an index of some vectors, for the embedder's metric."""
  return config.with_metric(vectors.meta.get('metric', 'squared_l2'))


def build_vector_store(
  path: str | os.PathLike,
  passages: passages_lib.Passages,
  embedder: retriever_lib.TextEmbedder,
  *,
  known: reuse.KnownVectors | None = None,
  executor: executors.Executor | None = None,
  progress: shards.Progress | None = None,
) -> array_store.Store:
  """Embed the text of every passage; resumes at the first missing shard.

  Args:
    known: vectors of earlier passages by the same embedder.
    executor: where the shards are made; None is this process.
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
    executor=executor,
    progress=progress,
    meta={'dimension': embedder.dimension, 'metric': embedder.metric},
  )
