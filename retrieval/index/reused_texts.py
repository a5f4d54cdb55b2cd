# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of a datastore that has changed: only new texts are embedded.

A chunk's vector follows from its text and the frozen embedder alone; where the old
datastore holds the very same text, its vector is copied.
"""

from collections.abc import Callable
from collections.abc import Sequence
import hashlib

import numpy as np

from retrieval import tokenization
from retrieval.index import vectors as vectors_lib
from retrieval.store import store
from retrieval.text import chunks as chunks_lib

_AT_ONCE = 4096  # chunks


def _hash(text: str) -> int:
  digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


class ReusingEmbedder:
  """An embedder that knows the vectors of an old datastore.

  Sixteen bytes in memory for each of its chunks.

  Attributes:
    dimension: of the vectors.
    fingerprint: the embedder's own: it gives the same vectors.
    num_reused: texts whose vectors were copied so far.
    num_embedded: texts embedded so far.
  """

  def __init__(
    self,
    embedder: vectors_lib.TextEmbedder,
    chunks: chunks_lib.ChunkStore,
    vectors: store.Store,
    tokenizer: tokenization.Tokenizer,
  ):
    """Hashes the old texts.

    Args:
      embedder: embeds the texts that are new.
      chunks: the old datastore.
      vectors: of its chunks.
      tokenizer: of the chunks.

    Raises:
      ValueError: when the vectors are of another embedder or of other chunks.
    """
    for what, found, wanted in (
      ('embedded with', vectors.fields['embedder'], embedder.fingerprint),
      ('of the chunks', vectors.fields['chunks'], chunks.fingerprint),
    ):
      if found != wanted:
        raise ValueError(
          f'{vectors.path}: {what} {found}, expected {wanted}: its vectors '
          'cannot be reused.'
        )
    self._embedder = embedder
    self._vectors = vectors.array('vectors')
    self._rows: dict[int, int] = {}
    for start in range(0, chunks.num_chunks, _AT_ONCE):
      ids = np.arange(start, min(start + _AT_ONCE, chunks.num_chunks))
      for i, text in zip(
        ids.tolist(), chunks.texts(ids, tokenizer), strict=True
      ):
        self._rows.setdefault(_hash(text), i)
    self.dimension = embedder.dimension
    self.fingerprint = embedder.fingerprint
    self.num_reused = 0
    self.num_embedded = 0

  def embed_texts(
    self,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
  ) -> np.ndarray:
    """Copies or embeds: [len(texts), dimension] float32, order kept."""
    rows = np.array([self._rows.get(_hash(text), -1) for text in texts], int)
    known = rows >= 0
    vectors = np.empty((len(texts), self.dimension), np.float32)
    vectors[known] = self._vectors[rows[known]]
    new = [text for text, old in zip(texts, known, strict=True) if not old]
    if new:
      vectors[~known] = self._embedder.embed_texts(new)
    if progress:
      progress(len(texts), len(texts))
    self.num_reused += len(texts) - len(new)
    self.num_embedded += len(new)
    return vectors
