# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training batches of REALM, with retrieval in the loop.

Guu et al. 2020, section 3 and 3.4: a sentence of X is masked; the query is embedded
with the index's own snapshot of the query embedder; the best blocks of Z but for the
one the sentence came from are found by maximum inner product search; the null
document goes first. The trainer scores these candidates again with its newest
parameters. All of it runs in Grain's reading threads, ahead of the device.
"""

from collections.abc import Mapping
import dataclasses
from typing import Protocol
from typing import runtime_checkable

import grain
import numpy as np

from realm_jax.data import examples
from realm_jax.data import sources
from retrieval.index import neighbors
from retrieval.store import store
from retrieval.text import blocks as blocks_lib

CANDIDATES = ('retrieved', 'random')
_MOST_COPIES = 64  # of one block, that are passed over


@runtime_checkable
class Snapshot(Protocol):
  """One index version, ready to answer.

  Attributes:
    step: of the parameters that it was built with.
  """

  step: int

  def retrieve(
    self, query_ids: np.ndarray, query_mask: np.ndarray, k: int
  ) -> np.ndarray:
    """Embeds queries and finds blocks: [B, Q] twice -> [B, k] ids, -1 for none."""


@runtime_checkable
class Snapshots(Protocol):
  """Which index version serves which batch."""

  def serving(self, batch_index: int | None) -> Snapshot:
    """The version for a training batch; None asks for the newest one."""


@dataclasses.dataclass(frozen=True)
class OneSnapshot:
  """The same index version for every batch; a `Snapshots`.

  Attributes:
    snapshot: that version.
  """

  snapshot: Snapshot

  def serving(self, batch_index: int | None) -> Snapshot:
    """That version."""
    del batch_index
    return self.snapshot


class Retrieval:
  """Adds candidates to batches of masked sentences."""

  def __init__(
    self,
    blocks: blocks_lib.BlockStore,
    layout: examples.Layout,
    snapshots: Snapshots,
    candidates: str = 'retrieved',
  ):
    """Keeps the blocks' hashes in memory, eight bytes each.

    Args:
      blocks: of Z.
      layout: lengths of rows.
      snapshots: which index serves.
      candidates: 'retrieved'; 'random' draws blocks, a control.
    """
    if candidates not in CANDIDATES:
      raise ValueError(
        f'candidates {candidates!r}: expected one of {CANDIDATES}.'
      )
    self._blocks, self._layout = blocks, layout
    self._snapshots, self._candidates = snapshots, candidates
    self._hashes = blocks.all_hashes()
    _, counts = np.unique(self._hashes, return_counts=True)
    # Copies of the block of origin are excluded like itself.
    self._most_copies = min(int(counts.max()), _MOST_COPIES)

  def __call__(
    self, batch_index: int | None, batch: Mapping[str, np.ndarray]
  ) -> examples.Batch:
    """Finds candidates and builds all rows.

    Args:
      batch_index: number of the training batch, or None.
      batch: stacked `sources.MaskedSentences.example`s.

    Returns:
      query_*, candidate_*, joint_* and mlm_* rows, origin [B] int32, and
      index_step [B] int32 the age of what retrieved.
    """
    sentences, counts = batch['sentence'], batch['sentence_count']
    rows = examples.queries(self._layout, sentences, counts)
    snapshot = self._snapshots.serving(batch_index)
    found = self._find(snapshot, rows, batch, batch_index)
    null = np.full((len(found), 1), examples.NULL, np.int64)
    ids = np.concatenate([null, found], axis=1)
    rows |= examples.candidates(
      self._layout, self._blocks, ids, sentences, counts
    )
    kept = ('mlm_positions', 'mlm_targets', 'mlm_mask', 'origin')
    return rows | {
      **{name: batch[name] for name in kept},
      'index_step': np.full(len(found), snapshot.step, np.int32),
    }

  def _find(self, snapshot, rows, batch, batch_index) -> np.ndarray:
    k = self._layout.num_candidates - 1
    wanted = min(k + self._most_copies, self._blocks.num_blocks)
    origins = np.asarray(batch['origin_hash'])
    if self._candidates == 'random':
      seed = [0 if batch_index is None else batch_index, *origins.tolist()]
      rng = np.random.default_rng(seed)
      ids = rng.integers(self._blocks.num_blocks, size=(len(origins), wanted))
    else:
      ids = snapshot.retrieve(rows['query_ids'], rows['query_mask'], wanted)
    hashes = self._hashes[np.maximum(ids, 0)]
    columns = neighbors.other_columns(ids, hashes, origins, k)
    return neighbors.take(ids, columns, examples.NONE)


def make_dataset(
  source: sources.MaskedSentences,
  retrieval: Retrieval,
  *,
  batch_size: int,
  train: bool,
  seed: int = 0,
  read_ahead: int = 2,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.IterDataset:
  """Batches of this process, checkpointable.

  The i-th batch asks for the index that serves batch i, so that a schedule of
  refreshes is followed exactly whatever is read ahead, and after a resume.

  Args:
    source: of masked sentences.
    retrieval: adds the candidates.
    batch_size: examples of a global batch.
    train: without end and masked anew in every pass; otherwise one pass.
    seed: of shuffle and masks.
    read_ahead: batches made ready before they are asked for, at least 1.
    process_index: of this process.
    process_count: processes that share a batch.

  Returns:
    A dataset of `Retrieval`'s batches, [batch_size / process_count, ...].

  Raises:
    ValueError: for a batch that does not divide or exceeds the source.
  """
  if batch_size < 1 or batch_size % process_count:
    raise ValueError(
      f'batch_size {batch_size}: expected a multiple of the {process_count} '
      'process(es).'
    )
  if len(source) < batch_size:
    raise ValueError(
      f'{source}: {len(source)} blocks can be masked, fewer than a batch of '
      f'{batch_size}.'
    )
  rows = grain.MapDataset.source(source).seed(seed).shuffle()
  if train:
    rows = rows.repeat()
  else:  # equally many rows, or one process would wait for the others
    rows = rows[: len(rows) // batch_size * batch_size]
  # Masked before they are shared out: the same masks for any number of processes.
  rows = rows.random_map(source.example)[process_index::process_count]
  rows = rows.batch(
    batch_size // process_count, drop_remainder=True, batch_fn=examples.stack
  )
  if train:
    rows = rows.map_with_index(retrieval)
  else:
    rows = rows.map(lambda batch: retrieval(None, batch))
  # A thread of its own also keeps retrieval out of the caller's mesh.
  return rows.to_iter_dataset(
    grain.ReadOptions(num_threads=1, prefetch_buffer_size=max(read_ahead, 1))
  )


def fingerprint(
  source: sources.MaskedSentences, blocks: blocks_lib.BlockStore, schedule: str
) -> str:
  """Hash of the stream of batches but for seed, batch size and processes.

  Args:
    source: of X.
    blocks: of Z.
    schedule: of the index refreshes.

  Returns:
    A hex string.
  """
  return store.fingerprint([source.fingerprint, blocks.fingerprint, schedule])
