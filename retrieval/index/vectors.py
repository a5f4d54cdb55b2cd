# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of every passage: the keys of RETRO's database (section 2.2)."""

import os

import numpy as np

from retrieval.search import retriever as retriever_lib
from retrieval.store import executors, shards, store
from retrieval.text import passages as passages_lib

KIND = 'vectors'
DTYPES = ('float32', 'bfloat16', 'float16')


def check_passages(
  vectors: store.Store, passages: passages_lib.Passages
) -> None:
  """Raise ValueError unless vectors are those of some passages."""
  if vectors.fields['passages'] != passages.fingerprint:
    raise ValueError(
      f'{vectors.path}: vectors of passages {vectors.fields["passages"]}, but '
      f'{passages.path} is {passages.fingerprint}; embed these first.'
    )


def build_vector_store(
  path: str | os.PathLike,
  passages: passages_lib.Passages,
  embedder: retriever_lib.TextEmbedder,
  *,
  dtype: str = 'float32',
  executor: executors.Executor | None = None,
  progress: shards.Progress | None = None,
) -> store.Store:
  """Embed the text of every passage; resumes at the first missing shard.

  Args:
    dtype: type of the stored vectors, one of `DTYPES`.
    executor: where the shards are made; None is this process.
  """
  fields = {
    'passages': passages.fingerprint,
    'embedder': embedder.fingerprint,
    'dtype': dtype,
  }
  counts = passages.store.rows('document')
  ends = np.cumsum(counts)

  def embed(i, done):
    ids = np.arange(ends[i] - counts[i], ends[i])
    texts = passages.search_texts(ids)
    vectors = embedder.embed_texts(texts, progress=done)
    shape = len(texts), embedder.dimension  # also of an empty shard
    return {'vectors': vectors.reshape(shape).astype(dtype)}

  return shards.build_store(
    path,
    KIND,
    fields,
    counts,
    embed,
    executor=executor,
    progress=progress,
    meta={'dimension': embedder.dimension},
  )
