# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training batches of REALM, with retrieval in the loop.

Guu et al. 2020, section 3 and 3.4: a query is embedded with the index's
snapshot of the query embedder. The candidates are the null document and the
best blocks of Z other than the sentence's own block. The trainer scores them
again. The pipeline runs in Grain's reading threads, ahead of the device.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from realm_jax.data import examples, sources
from retrieval.search import exclude
from retrieval.searchers import subset as subset_lib
from retrieval.text import blocks as blocks_lib

CANDIDATES = ('retrieved', 'random')
_MOST_COPIES = 64  # most copies of a block that are excluded with it


@runtime_checkable
class Snapshots(Protocol):
  """Index versions by training batch."""

  def serving(self, batch_index: int | None) -> Any:
    """Return the version for a batch, or for None the newest version.

    It has the `step` of its parameters, and `retrieve` as `embedders.BlockIndex`.
    """


class Retrieval:
  """Adds candidates to batches of masked sentences."""

  def __init__(
    self,
    blocks: blocks_lib.BlockStore,
    layout: examples.Layout,
    snapshots: Snapshots,
    candidates: Literal['retrieved', 'random'] = 'retrieved',
  ):
    """Hash Z's blocks; 'random' candidates are a control."""
    self._blocks, self._layout = blocks, layout
    self._snapshots, self._candidates = snapshots, candidates
    self._hashes = blocks.all_hashes()
    _, counts = np.unique(self._hashes, return_counts=True)
    # Copies of the block of origin are excluded, too.
    self._most_copies = min(int(counts.max()), _MOST_COPIES)

  def __call__(
    self, batch_index: int | None, batch: Mapping[str, np.ndarray]
  ) -> examples.Batch:
    """Find candidates for stacked `sources.MaskedSentences.example`s.

    Returns query_*, candidate_*, joint_* and mlm_* rows; origin [B] int32;
    index_step [B] int32, the training step of the index that retrieved.
    """
    sentences, counts = batch['sentence'], batch['sentence_count']
    rows = examples.queries(self._layout, sentences, counts)
    snapshot = self._snapshots.serving(batch_index)
    best = self._find(snapshot, rows, batch, batch_index)
    null = np.full((len(best), 1), examples.NULL, np.int64)
    ids = np.concatenate([null, best], axis=1)
    rows |= examples.candidates(
      self._layout, self._blocks, ids, sentences, counts
    )
    names = ('mlm_positions', 'mlm_targets', 'mlm_mask', 'origin')
    return rows | {
      **{name: batch[name] for name in names},
      'index_step': np.full(len(best), snapshot.step, np.int32),
    }

  def _find(self, snapshot, rows, batch, batch_index) -> np.ndarray:
    k = self._layout.num_candidates - 1
    count = min(k + self._most_copies, self._blocks.num_blocks)
    origins = np.asarray(batch['origin_hash'])
    if self._candidates == 'random':
      seed = [0 if batch_index is None else batch_index, *origins.tolist()]
      rng = np.random.default_rng(seed)
      ids = rng.integers(self._blocks.num_blocks, size=(len(origins), count))
    else:
      ids = snapshot.retrieve(rows['query_ids'], rows['query_mask'], count)
    hashes = self._hashes[np.maximum(ids, 0)]
    columns = exclude.other_columns(ids, hashes, origins, k)
    return subset_lib.take(ids, columns, examples.NONE)


def make_dataset(
  source: sources.MaskedSentences,
  retrieval: Retrieval,
  *,
  batch_size: int,
  train: bool,
  seed: int = 0,
  process_index: int = 0,
  process_count: int = 1,
) -> Iterable[Any]:
  """Batches [batch_size / process_count, ...] of this process, checkpointable.

  Batch i uses the index version for batch i, also if it is read ahead or after
  a resume.

  Args:
    train: whether passes follow each other, each with new masks.

  Raises:
    ValueError: for a batch that does not divide or exceeds the source.
  """
  examples.check_batch(source, batch_size, process_count)
  import grain  # a second, with Orbax; who only searches goes without

  rows = grain.MapDataset.source(source).seed(seed).shuffle()
  if train:
    rows = rows.repeat()
  else:  # Processes without equally many rows would wait for each other.
    rows = rows[: len(rows) // batch_size * batch_size]
  # Masking precedes sharing, so that the masks do not depend on the processes.
  rows = rows.random_map(source.example)[process_index::process_count]
  rows = rows.batch(
    batch_size // process_count, drop_remainder=True, batch_fn=examples.stack
  )
  if train:
    rows = rows.map_with_index(retrieval)
  else:
    rows = rows.map(lambda batch: retrieval(None, batch))
  # In another thread, retrieval is outside of the caller's mesh.
  return rows.to_iter_dataset(
    grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
  )
