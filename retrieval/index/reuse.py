# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reuse of vectors and of terms: only new texts are embedded or analysed.

A vector follows from a text and the parameters of its embedder. `ReusedBlocks` and
`ReusedTexts` copy the vectors of texts that an earlier corpus holds, too, `ReusedTerms`
their terms and `ReusedCodes` the codes of their tokens; `adopt` links a whole index
version of the same blocks and parameters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import os
import pathlib
import shutil
from typing import Any

from absl import logging
import numpy as np

from retrieval import tokenization
from retrieval.index import (
  index as index_lib,
  index_versions,
  snapshots,
  vectors as vectors_lib,
)
from retrieval.search import (
  late_interaction,
  sparse_index,
)
from retrieval.store import drafts, links, locks, shards, store
from retrieval.text import (
  blocks as blocks_lib,
  chunks as chunks_lib,
  tokens as tokens_lib,
)

_AT_ONCE = 4096  # chunks


class _Known:
  """Rows by the 64-bit hash of their text, in 16 bytes of memory each."""

  def __init__(self, hashes: np.ndarray):
    """Sort the hashes [n] uint64 of the old rows."""
    self._rows = np.argsort(hashes, kind='stable')
    self._hashes = hashes[self._rows]
    self.num_reused = 0

  def find(self, hashes: np.ndarray) -> np.ndarray:
    """Return the old row of each hash, or -1 for a new hash."""
    if not len(self._hashes):
      return np.full(len(hashes), -1)
    places = np.searchsorted(self._hashes, hashes)
    places = np.minimum(places, len(self._hashes) - 1)
    return np.where(self._hashes[places] == hashes, self._rows[places], -1)


class _Copied(_Known):
  """Parts of an index by the hash of their text."""

  def __init__(
    self,
    hashes: np.ndarray,
    copy: Callable[[np.ndarray, np.ndarray], Iterator[Any]],
  ):
    """Sort the hashes [n] uint64 of old rows; `copy` reads (new places, old rows)."""
    super().__init__(hashes)
    self._copy = copy

  def __call__(self, hashes: np.ndarray) -> Iterator[Any]:
    """Yield the parts of texts with these hashes [n] that are known."""
    rows = self.find(hashes)
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
    self, old: late_interaction.LateInteraction, texts: sparse_index.Texts
  ):
    """Hash the texts of the old index.

    Raises:
      ValueError: when the index is of other texts.
    """
    _require(old.path, ('of texts', old.fields['texts'], texts.fingerprint))
    lows = range(0, texts.num_texts, _AT_ONCE)
    limits = (min(low + _AT_ONCE, texts.num_texts) for low in lows)
    ids = map(np.arange, lows, limits)
    super().__init__(np.concatenate([texts.hashes(x) for x in ids]), old.codes)
    self.fields, self.codec = old.fields, old.codec


class _Reuse(_Known):
  """Vectors by the hash of their text."""

  def __init__(self, hashes: np.ndarray, vectors):
    """Sort the hashes [n] uint64 of old vectors [n, d]."""
    super().__init__(hashes)
    self._vectors = vectors
    self.num_embedded = 0

  def _fill(
    self,
    hashes: np.ndarray,
    embed: Callable[[np.ndarray, shards.Progress | None], np.ndarray],
    progress: shards.Progress | None,
  ) -> np.ndarray:
    """Return [n, d] float32: old vectors, and those of `embed` at new places."""
    rows = self.find(hashes)
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


class ReusedBlocks(_Reuse):
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
    fingerprint = snapshots.fingerprint(params)
    _require(
      old.path,
      ('vectors of parameters', old.params_fingerprint, fingerprint),
      (
        f'vectors of blocks of {old_blocks.path}',
        old.blocks_fingerprint,
        old_blocks.fingerprint,
      ),
    )
    tokenizer, cut = (
      old_blocks.tokens.tokenizer_fingerprint,
      old_blocks.max_length,
    )
    _require(
      f'{old_blocks.path} for {blocks.path}',
      ('tokenizer', tokenizer, blocks.tokens.tokenizer_fingerprint),
      ('max_length', cut, blocks.max_length),
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


class ReusedTexts(_Reuse):
  """A `vectors.TextEmbedder` that copies vectors of an old datastore.

  Attributes:
    fingerprint: fingerprint of the embedder, whose vectors these are.
  """

  def __init__(
    self,
    embedder: vectors_lib.TextEmbedder,
    chunks: chunks_lib.ChunkStore,
    vectors: store.Store,
    tokenizer: tokenization.Tokenizer,
  ):
    """Hash the texts of the old chunks.

    Raises:
      ValueError: when the vectors are of another embedder or of other chunks.
    """
    _require(
      vectors.path,
      ('embedded with', vectors.fields['embedder'], embedder.fingerprint),
      ('of the chunks', vectors.fields['chunks'], chunks.fingerprint),
    )
    hashes = []
    for start in range(0, chunks.num_chunks, _AT_ONCE):
      ids = np.arange(start, min(start + _AT_ONCE, chunks.num_chunks))
      hashes.append(tokens_lib.hash_ids(chunks.texts(ids, tokenizer)))
    hashes = np.concatenate([tokens_lib.hash_ids(()), *hashes])
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


def _require(path, *rows: tuple[str, Any, Any]) -> None:
  """Raise ValueError for the first of (name, found, wanted) that differs."""
  for what, found, wanted in rows:
    if found != wanted:
      raise ValueError(
        f'{path}: {what} {found}, expected {wanted}: its vectors cannot be '
        'reused; embed all texts.'
      )


def adopt(
  folder: index_versions.VersionFolder,
  step: int,
  params: Any,
  blocks: blocks_lib.BlockStore,
  source: str | os.PathLike,
  config: index_lib.IndexConfig,
  *,
  part: Callable[[Mapping[str, Any]], Any] | None = None,
) -> str | None:
  """Publish a version of another folder here; nothing is embedded.

  Links the files, or copies them where links fail. Builds a new index of the
  vectors where `config` asks for another one.

  Args:
    params: the embedder's parameters, a tree of host arrays.
    source: folder of versions, perhaps `folder` itself.
    part: parameters -> parameters that embed blocks; None is all of them.

  Returns:
    The version's name, or None where `source` has no version of these
    parameters and blocks.

  Raises:
    ValueError: for an index below its floor.
  """
  name = index_versions.version_name(step, params, blocks)
  others = index_versions.VersionFolder(source)
  for found in reversed(others.names()):
    with others.held(found) as path:
      if (
        path is not None
        and _is_same(path, params, blocks, part)
        and others.is_whole(found)
      ):
        _publish(folder.root / name, path, step, params, blocks, config)
        return name
  return None


def _is_same(path: pathlib.Path, params, blocks, part) -> bool:
  """Return whether a version has the vectors of these parameters and blocks."""
  fingerprint = snapshots.fingerprint
  try:
    manifest = index_versions.read_manifest(path)
    if manifest['blocks'] != blocks.fingerprint:
      return False
    same = manifest['params'] == fingerprint(params)
    if same or part is None:
      return same
    theirs = part(index_versions.read_snapshot(path))
  except (FileNotFoundError, ValueError) as e:
    logging.warning('%s cannot be adopted (%s).', path, e)
    return False
  return fingerprint(theirs) == fingerprint(part(params))


def _publish(
  target: pathlib.Path, found: pathlib.Path, step: int, params, blocks, config
) -> None:
  """Publish the vectors of `found`, and its index where `config` allows."""
  target.parent.mkdir(parents=True, exist_ok=True)
  with locks.hold(target.parent / '.adopting'):
    if target.is_dir():  # of a second process
      return
    draft = drafts.beside(target)
    try:
      links.folder(found / 'vectors', draft / 'vectors')
      stored = store.Store.open(draft / 'vectors', index_versions.VECTORS_KIND)
      vectors = stored.array('vectors')
      if index_lib.suits(found / 'index', vectors, stored.fingerprint, config):
        links.folder(found / 'index', draft / 'index')
      else:
        index_lib.build_index(
          draft / 'index', vectors, stored.fingerprint, config
        )
      index_versions.seal(draft, step, params, blocks)
      store.publish_folder(draft, target)
    finally:
      shutil.rmtree(draft, ignore_errors=True)
  logging.info('Index version %s: adopted from %s.', target.name, found)
