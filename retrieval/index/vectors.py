# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of every chunk: the keys of RETRO's database (section 2.2)."""

from collections.abc import Callable
from collections.abc import Sequence
import os
from typing import Protocol
from typing import runtime_checkable

import numpy as np

from retrieval import tokenization
from retrieval.store import store
from retrieval.text import chunks as chunks_lib

KIND = 'vectors'
DTYPES = ('float32', 'float16')


@runtime_checkable
class TextEmbedder(Protocol):
  """What embeds: `embedders.Embedder`, or `reused_texts.ReusingEmbedder`.

  Attributes:
    dimension: of the vectors.
    fingerprint: hash of what decides them.
  """

  dimension: int
  fingerprint: str

  def embed_texts(
    self,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
  ) -> np.ndarray:
    """[len(texts), dimension] float32, order kept."""


def _from(progress, base: int, total: int) -> Callable[[int, int], None]:
  """Shifts a shard's progress to its place in the whole."""
  return lambda done, _: progress(base + done, total)


def build_vector_store(
  path: str | os.PathLike,
  chunks: chunks_lib.ChunkStore,
  tokenizer: tokenization.Tokenizer,
  embedder: TextEmbedder,
  *,
  dtype: str = 'float32',
  process_index: int = 0,
  process_count: int = 1,
  progress: Callable[[int, int], None] | None = None,
) -> store.Store | None:
  """Embeds the text of every chunk; resumes at the first missing shard.

  Each process embeds every `process_count`-th shard; whichever finds all of
  them written publishes the store.

  Args:
    path: where the vectors will stand.
    chunks: what is embedded, shard by shard.
    tokenizer: the one that made the chunks' tokens.
    embedder: text -> vector.
    dtype: of the stored vectors, float32 or float16.
    process_index: number of this process.
    process_count: how many processes share the work.
    progress: called with (chunks done, chunks in all).

  Returns:
    The published store, or None while other processes still have work.

  Raises:
    ValueError: when the tokenizer is not the chunks' own, or for another dtype.
  """
  chunks.tokens.check_tokenizer(tokenizer)
  if dtype not in DTYPES:
    raise ValueError(f'Vectors of type {dtype!r}: expected one of {DTYPES}.')
  fields = {
    'chunks': chunks.fingerprint,
    'embedder': embedder.fingerprint,
    'dtype': dtype,
  }
  writer = store.StoreWriter(path, KIND, fields)
  if writer.published:
    return store.Store.open(path, KIND)
  counts = chunks.store.rows('document')
  offsets = np.concatenate([[0], np.cumsum(counts)])
  todo = writer.missing(len(counts))
  mine = [i for i in todo if i % process_count == process_index]
  total = sum(counts[i] for i in mine)
  done = 0
  for i in mine:
    ids = np.arange(offsets[i], offsets[i + 1])
    texts = chunks.texts(ids, tokenizer)
    vectors = embedder.embed_texts(
      texts, progress=progress and _from(progress, done, total)
    )
    writer.write(i, {'vectors': vectors.astype(dtype)})
    done += len(ids)
  if writer.missing(len(counts)):
    return None
  return writer.publish(len(counts), {'dimension': embedder.dimension})
