# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of a corpus that has changed: only its new blocks are embedded.

A block's vector follows from its title, its text and the embedder alone. Where an
index version of the very same parameters holds a block of the same title and text,
its vector is copied, wherever the block stood then.
"""

from collections.abc import Callable
import functools
from typing import Any

from jaxtyping import Int
import numpy as np

from retrieval.index import index_versions
from retrieval.text import blocks as blocks_lib


class ReusedVectors:
  """Embeds what an old version does not hold; an `index_versions.EmbedBlocks`.

  Sixteen bytes in memory for each block of the old version.

  Attributes:
    num_reused: vectors copied so far.
    num_embedded: vectors embedded so far.
  """

  def __init__(
    self,
    embed: index_versions.EmbedBlocks,
    blocks: blocks_lib.BlockStore,
    params: Any,
    old_blocks: blocks_lib.BlockStore,
    old: index_versions.Version,
  ):
    """Sorts the hashes of the old blocks.

    Args:
      embed: embeds those of `blocks` that are new.
      blocks: of the changed corpus.
      params: those of `embed`, a tree of host arrays.
      old_blocks: of the corpus before.
      old: their version; must stay open as long as this is used.

    Raises:
      ValueError: when `old` is of other parameters or other blocks, or when the
        two corpora were not tokenized and cut in the same way.
    """
    _check(blocks, params, old_blocks, old)
    self._embed, self._blocks = embed, blocks
    self._vectors = old.vectors
    hashes = old_blocks.all_hashes()
    self._rows = np.argsort(hashes, kind='stable')
    self._hashes = hashes[self._rows]
    self.num_reused = 0
    self.num_embedded = 0

  def find(self, ids: Int[np.ndarray, ' n']) -> Int[np.ndarray, ' n']:
    """Row of the old vectors for each block, -1 where there is none."""
    hashes = self._blocks.hashes(ids)
    places = np.searchsorted(self._hashes, hashes)
    places = np.minimum(places, len(self._hashes) - 1)
    return np.where(self._hashes[places] == hashes, self._rows[places], -1)

  def __call__(
    self,
    ids: np.ndarray,
    progress: Callable[[int, int], None] | None = None,
  ) -> np.ndarray:
    """Copies or embeds the vectors of blocks.

    Args:
      ids: [n] block ids.
      progress: called with (blocks done, blocks in all).

    Returns:
      [n, d] float32.
    """
    rows = self.find(ids)
    known = rows >= 0
    reused, total = int(known.sum()), len(ids)
    vectors = np.empty((total, *self._vectors.shape[1:]), np.float32)
    vectors[known] = self._vectors[rows[known]]
    if progress:
      progress(reused, total)
    if reused < total:
      shifted = progress and functools.partial(_shift, progress, reused, total)
      vectors[~known] = self._embed(ids[~known], shifted)
    self.num_reused += reused
    self.num_embedded += total - reused
    return vectors


def _shift(progress, base: int, total: int, done: int, _: int) -> None:
  progress(base + done, total)


def _check(blocks, params, old_blocks, old: index_versions.Version) -> None:
  fingerprint = index_versions.params_fingerprint(params)
  if old.params_fingerprint != fingerprint:
    raise ValueError(
      f'{old.path}: vectors of parameters {old.params_fingerprint}, but those '
      f'given are {fingerprint}: nothing can be reused, embed all blocks.'
    )
  if old.blocks_fingerprint != old_blocks.fingerprint:
    raise ValueError(
      f'{old.path}: vectors of blocks {old.blocks_fingerprint}, but '
      f'{old_blocks.path} is {old_blocks.fingerprint}.'
    )
  for what, now, before in (
    (
      'tokenizer',
      blocks.tokens.tokenizer_fingerprint,
      old_blocks.tokens.tokenizer_fingerprint,
    ),
    ('max_length', blocks.max_length, old_blocks.max_length),
  ):
    if now != before:
      raise ValueError(
        f'{blocks.path}: {what} {now}, but {old_blocks.path} was made with '
        f'{before}: its vectors cannot be reused.'
      )
