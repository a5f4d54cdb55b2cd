# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of a split's blocks or questions, for ICT, MLM and DPR."""

from collections.abc import Callable

import grain
import numpy as np

from realm_jax.data import examples
from retrieval.text import blocks as blocks_lib, tokens as tokens_lib

# (numbers of rows [B], randomness) -> rows [B, ...]
Read = Callable[[np.ndarray, np.random.Generator], examples.Batch]


class Split:
  """Row numbers [n] int64 of a split: a random-access source for Grain."""

  def __init__(self, chosen: np.ndarray, name: str):
    """Take the rows where `chosen` is True; ValueError without such a row."""
    if not chosen.any():
      raise ValueError(f'{name} holds no row.')
    self.numbers, self._name = np.flatnonzero(chosen), name

  def __len__(self) -> int:
    return len(self.numbers)

  def __getitem__(self, i: int) -> int:
    return int(self.numbers[int(i)])

  def __repr__(self) -> str:
    return self._name


def split_blocks(
  blocks: blocks_lib.BlockStore, split: str, valid_fraction: float
) -> Split:
  """Blocks of a split: 'train', 'valid' or 'all'; ValueError for no block."""
  hashes = blocks.tokens.id_hash[:]
  chosen = tokens_lib.in_split(hashes, split, valid_fraction)
  return Split(
    chosen[blocks.documents(np.arange(blocks.num_blocks))],
    f'{blocks.path}: split {split!r} with valid_fraction {valid_fraction} of '
    f'blocks {blocks.fingerprint}',
  )


def make_dataset(
  read: Read,
  source: Split,
  *,
  endless: bool,
  batch_size: int,
  seed: int = 0,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.IterDataset:
  """Batches [batch_size / process_count, ...] of this process, checkpointable.

  Args:
    endless: whether another pass follows each pass.
    batch_size: rows of a global batch; in ICT and DPR each other's negatives.
    seed: of the order and of the randomness of `read`.

  Raises:
    ValueError: for a batch that does not divide or exceeds the source.
  """
  examples.check_batch(source, batch_size, process_count)
  rows = grain.MapDataset.source(source).seed(seed).shuffle()
  # All processes take equally many rows, or one would wait for the others.
  multiple_of = process_count if endless else batch_size
  limit = len(rows) // multiple_of * multiple_of
  rows = rows[process_index:limit:process_count]
  if endless:
    rows = rows.repeat()
  rows = rows.batch(
    batch_size // process_count, drop_remainder=True, batch_fn=np.asarray
  )
  # Each process draws for its own rows.
  return rows.random_map(read, seed=seed + process_index).to_iter_dataset(
    grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
  )
