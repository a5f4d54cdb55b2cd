# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches made of blocks: the inverse cloze task, masked language modelling."""

from collections.abc import Callable

import grain
import numpy as np

from realm_jax.data import examples
from retrieval.store import store
from retrieval.text import blocks as blocks_lib
from retrieval.text import chunks as chunks_lib

# (ids of blocks [B], randomness) -> rows [B, ...]
Read = Callable[[np.ndarray, np.random.Generator], examples.Batch]


class Blocks:
  """Ids of the blocks of a split: a random-access source for Grain.

  Attributes:
    ids: [n] int64.
  """

  def __init__(
    self, blocks: blocks_lib.BlockStore, split: str, valid_fraction: float
  ):
    """Takes the blocks of a split's documents.

    Raises:
      ValueError: when there is none.
    """
    hashes = blocks.tokens.id_hash[:]
    chosen = chunks_lib.in_split(hashes, split, valid_fraction)
    ids = np.arange(blocks.num_blocks)
    self.ids = ids[chosen[blocks.documents(ids)]]
    self._name = f'{blocks.fingerprint}, {split}, {valid_fraction}'
    if not len(self.ids):
      raise ValueError(
        f'{blocks.path}: split {split!r} with valid_fraction {valid_fraction} '
        'holds no block.'
      )

  def __len__(self) -> int:
    return len(self.ids)

  def __getitem__(self, i: int) -> int:
    return int(self.ids[int(i)])

  def __repr__(self) -> str:
    return f'Blocks({self._name})'


def make_dataset(
  read: Read,
  blocks: blocks_lib.BlockStore,
  *,
  split: str,
  valid_fraction: float,
  batch_size: int,
  seed: int = 0,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.IterDataset:
  """Batches of this process, checkpointable.

  Args:
    read: makes a batch of block ids, e.g. `ict.read_rows` with its settings.
    blocks: where they lie.
    split: 'train' (without end), 'valid' or 'all' (one pass).
    valid_fraction: share of documents held out.
    batch_size: blocks of a global batch; in ICT each other's negatives.
    seed: of the order and of what `read` draws.
    process_index: of this process.
    process_count: processes that share a batch.

  Returns:
    A dataset of what `read` makes, [batch_size / process_count, ...].

  Raises:
    ValueError: for a batch that does not divide or exceeds the split.
  """
  return batches(
    read,
    Blocks(blocks, split, valid_fraction),
    where=f'{blocks.path}: split {split!r}',
    unit='blocks',
    endless=split == 'train',
    batch_size=batch_size,
    seed=seed,
    process_index=process_index,
    process_count=process_count,
  )


def batches(
  read: Read,
  source: grain.sources.RandomAccessDataSource,
  *,
  where: str,
  unit: str = 'examples',
  endless: bool,
  batch_size: int,
  seed: int = 0,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.IterDataset:
  """Batches of any numbers that can be read, checkpointable.

  Args:
    read: makes a batch of numbers.
    source: the numbers; its repr names it.
    where: names the source in the message when there are too few.
    unit: of what is counted there.
    endless: whether to begin again, or one pass.
    batch_size: of a global batch.
    seed: of the order and of what `read` draws.
    process_index: of this process.
    process_count: processes that share a batch.

  Returns:
    A dataset of what `read` makes, [batch_size / process_count, ...].

  Raises:
    ValueError: for a batch that does not divide or exceeds the source.
  """
  if batch_size < 2 or batch_size % process_count:
    raise ValueError(
      f'batch_size {batch_size}: expected at least 2 and a multiple of the '
      f'{process_count} process(es).'
    )
  if len(source) < batch_size:
    raise ValueError(
      f'{where} has {len(source)} {unit}, fewer than a batch of {batch_size}.'
    )
  rows = grain.MapDataset.source(source).seed(seed).shuffle()
  # Equally many rows, or at the end one process would wait for the others.
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


def fingerprint(blocks: blocks_lib.BlockStore, *settings: object) -> str:
  """Hash of the stream but for seed, batch size and processes."""
  return store.fingerprint([blocks.fingerprint, *map(str, settings)])
