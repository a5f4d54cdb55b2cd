# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reuse of vectors and of terms: only new texts are embedded or analyzed.

A vector follows from a text and the parameters of its embedder. `ReusedBlocks` and
`ReusedTexts` copy the vectors of texts that an earlier corpus holds, too, `ReusedTerms`
their terms and `ReusedCodes` the codes of their tokens, each by the hash of the text.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from retrieval.index import index_versions, snapshots
from retrieval.search import (
  late_interaction,
  retriever as retriever_lib,
  sparse_index,
)
from retrieval.store import shards, store
from retrieval.text import (
  blocks as blocks_lib,
  chunks as chunks_lib,
  passages as passages_lib,
  tokens as tokens_lib,
)

_AT_ONCE = 4096  # texts


class Rows:
  """A map from the 64-bit hash of a text to its row, in 16 bytes each."""

  def __init__(self, hashes: np.ndarray):
    """Sort the hashes [n] uint64 of the old rows."""
    self._rows = np.argsort(hashes, kind='stable')
    self._hashes = hashes[self._rows]

  def find(self, hashes: np.ndarray) -> np.ndarray:
    """Return the old row of each hash, or -1 for a new hash."""
    if not len(self._hashes):
      return np.full(len(hashes), -1)
    places = np.searchsorted(self._hashes, hashes)
    places = np.minimum(places, len(self._hashes) - 1)
    return np.where(self._hashes[places] == hashes, self._rows[places], -1)


class _Copied:
  """Parts of an index by the hash of their text."""

  def __init__(
    self,
    hashes: np.ndarray,
    copy: Callable[[np.ndarray, np.ndarray], Iterator[Any]],
  ):
    """Take the hashes [n] of old rows; `copy` reads (new places, old rows)."""
    self._known, self._copy = Rows(hashes), copy
    self.num_reused = 0

  def __call__(self, hashes: np.ndarray) -> Iterator[Any]:
    """Yield the parts of texts with these hashes [n] that are known."""
    rows = self._known.find(hashes)
    (places,) = np.nonzero(rows >= 0)
    self.num_reused += len(places)
    return self._copy(places, rows[places])


class ReusedTerms(_Copied):
  """A `term_counts.Known` that copies the terms of an old index."""

  def __init__(self, old: sparse_index.SparseIndex):
    """Take an index of the same terms, whose texts were hashed in the same way."""
    super().__init__(old.hashes(), old.counts)


class ReusedCodes(_Copied):
  """A `token_store.Known` that copies the codes of an old index."""

  def __init__(
    self, old: late_interaction.LateInteraction, texts: passages_lib.Passages
  ):
    """Hash the texts of the old index.

    Raises:
      ValueError: when the index is of other texts.
    """
    _require(old.path, ('of texts', old.fields['texts'], texts.fingerprint))
    super().__init__(_hashes(len(texts), texts.hashes), old.codes)
    self.fields, self.codec = old.fields, old.codec


class _Vectors:
  """Old vectors by the hash of their text, and an embedder of new texts."""

  def __init__(self, hashes: np.ndarray, vectors):
    """Take the hashes [n] uint64 of old vectors [n, d]."""
    self._known, self._vectors = Rows(hashes), vectors
    self.num_reused = self.num_embedded = 0

  def _fill(
    self,
    hashes: np.ndarray,
    embed: Callable[[np.ndarray, shards.Progress | None], np.ndarray],
    progress: shards.Progress | None,
  ) -> np.ndarray:
    """Return [n, d] float32: old vectors, and those of `embed` at new places."""
    rows = self._known.find(hashes)
    known, total = rows >= 0, len(rows)
    reused = int(known.sum())
    vectors = np.empty((total, *self._vectors.shape[1:]), np.float32)
    vectors[known] = self._vectors[rows[known]]
    if progress:
      progress(reused, total)
    if reused < total:
      shifted = shards.shifted(progress, reused, total)
      vectors[~known] = embed(np.flatnonzero(~known), shifted)
    self.num_reused += reused
    self.num_embedded += total - reused
    return vectors


class ReusedBlocks(_Vectors):
  """An `index_versions.EmbedBlocks` that copies vectors of an old version."""

  def __init__(
    self,
    embed: index_versions.EmbedBlocks,
    blocks: blocks_lib.BlockStore,
    params: Any,
    old_blocks: blocks_lib.BlockStore,
    old: index_versions.Version,
  ):
    """Hash the titles and texts of the old blocks.

    Args:
      params: parameters of `embed`, a tree of host arrays.
      old: open index version of `old_blocks`.

    Raises:
      ValueError: when `old` has other parameters or other blocks, or when the
        two corpora were not tokenized and cut in the same way.
    """
    had, have = old_blocks.tokens, blocks.tokens
    _require(
      old.path,
      ('parameters', old.params_fingerprint, snapshots.fingerprint(params)),
      ('blocks', old.blocks_fingerprint, old_blocks.fingerprint),
      (
        'tokenizer of blocks',
        had.tokenizer_fingerprint,
        have.tokenizer_fingerprint,
      ),
      ('max_length of blocks', old_blocks.max_length, blocks.max_length),
    )
    super().__init__(old_blocks.all_hashes(), old.vectors)
    self._embed, self._blocks = embed, blocks

  def __call__(
    self, ids: np.ndarray, progress: shards.Progress | None = None
  ) -> np.ndarray:
    """Return the vectors [n, d] float32 of blocks [n], copied or embedded."""

    def embed(places, progress):
      return self._embed(ids[places], progress)

    return self._fill(self._blocks.hashes(ids), embed, progress)


class ReusedTexts(_Vectors):
  """A `retriever.TextEmbedder` that copies vectors of an old datastore.

  Attributes:
    fingerprint: fingerprint of the embedder, whose vectors these are.
  """

  def __init__(
    self,
    embedder: retriever_lib.TextEmbedder,
    chunks: chunks_lib.ChunkStore,
    vectors: store.Store,
  ):
    """Hash the texts of the old chunks.

    Raises:
      ValueError: when the vectors are of another embedder or of other chunks.
    """
    _require(
      vectors.path,
      ('embedder', vectors.fields['embedder'], embedder.fingerprint),
      ('passages', vectors.fields['passages'], chunks.fingerprint),
    )

    def hash_texts(ids):
      return tokens_lib.hash_ids(chunks.texts(ids))

    hashes = _hashes(len(chunks), hash_texts)
    super().__init__(hashes, vectors.array('vectors'))
    self._embedder = embedder
    self.dimension = embedder.dimension
    self.fingerprint = embedder.fingerprint

  def embed_texts(
    self, texts: Sequence[str], progress: shards.Progress | None = None
  ) -> np.ndarray:
    """Return vectors [len(texts), dimension] float32, copied or embedded."""

    def embed(places, progress):
      new = [texts[i] for i in places]
      return self._embedder.embed_texts(new, progress=progress)

    return self._fill(tokens_lib.hash_ids(texts), embed, progress)


def _hashes(count: int, hash_some: Callable) -> np.ndarray:
  """Return hash_some(ids) of all ids below `count`."""
  parts = [tokens_lib.hash_ids(())]
  for low in range(0, count, _AT_ONCE):
    parts.append(hash_some(np.arange(low, min(low + _AT_ONCE, count))))
  return np.concatenate(parts)


def _require(path, *rows: tuple[str, Any, Any]) -> None:
  """Raise ValueError for the first of (name, found, wanted) that differs."""
  for what, found, wanted in rows:
    if found != wanted:
      raise ValueError(
        f'{path}: {what} {found}, expected {wanted}: nothing can be reused; embed '
        'all texts.'
      )
