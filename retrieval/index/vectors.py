# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of every chunk: the keys of RETRO's database (section 2.2)."""

from collections.abc import Callable, Sequence
import os
from typing import Protocol, runtime_checkable

import numpy as np

from retrieval import tokenization
from retrieval.store import executors, shards, store
from retrieval.text import chunks as chunks_lib

KIND = 'vectors'
DTYPES = ('float32', 'bfloat16', 'float16')


@runtime_checkable
class TextEmbedder(Protocol):
  """A frozen map from text to vector, such as `embedders.Embedder`."""

  dimension: int
  fingerprint: str  # hash of everything that decides the vectors

  def embed_texts(
    self,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
  ) -> np.ndarray:
    """Return vectors [len(texts), dimension] float32 in the order of `texts`."""


def check_chunks(vectors: store.Store, chunks: chunks_lib.ChunkStore) -> None:
  """Raise ValueError unless vectors are those of some chunks."""
  if vectors.fields['chunks'] != chunks.fingerprint:
    raise ValueError(
      f'{vectors.path}: vectors of chunks {vectors.fields["chunks"]}, but '
      f'{chunks.path} is {chunks.fingerprint}; embed these chunks first.'
    )


def build_vector_store(
  path: str | os.PathLike,
  chunks: chunks_lib.ChunkStore,
  tokenizer: tokenization.Tokenizer,
  embedder: TextEmbedder,
  *,
  dtype: str = 'float32',
  executor: executors.Executor | None = None,
  progress: shards.Progress | None = None,
) -> store.Store:
  """Embed the text of every chunk; resumes at the first missing shard.

  Args:
    dtype: type of the stored vectors, one of `DTYPES`.
    executor: where the shards are made; None is this process.

  Raises:
    ValueError: when the tokenizer is not that of the chunks, or for another dtype.
  """
  chunks.tokens.check_tokenizer(tokenizer)
  if dtype not in DTYPES:
    raise ValueError(f'Vectors of type {dtype!r}: expected one of {DTYPES}.')
  fields = {
    'chunks': chunks.fingerprint,
    'embedder': embedder.fingerprint,
    'dtype': dtype,
  }
  counts = chunks.store.rows('document')
  ends = np.cumsum(counts)

  def embed(i, done):
    ids = np.arange(ends[i] - counts[i], ends[i])
    texts = chunks.texts(ids, tokenizer)
    vectors = embedder.embed_texts(texts, progress=done)
    return {'vectors': vectors.astype(dtype)}

  meta = {'dimension': embedder.dimension}
  return shards.build_store(
    path,
    KIND,
    fields,
    counts,
    embed,
    executor=executor,
    progress=progress,
    meta=meta,
  )
