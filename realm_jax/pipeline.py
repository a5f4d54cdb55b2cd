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

from realm_jax import examples
from realm_jax import masking
from retrieval import blocks as blocks_lib
from retrieval import chunks as chunks_lib
from retrieval import salient as salient_lib
from retrieval import store

CANDIDATES = ('retrieved', 'random')
_LEAST_TOKENS = 4  # of a sentence that random maskers use
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceConfig:
  """What is masked.

  Attributes:
    masker: 'salient', 'uniform' or 'span'.
    split: 'train', 'valid' or 'all', by the hash of the document's id.
    valid_fraction: share of documents held out.
    labels: names of the salient spans' labels that are used; () for all.
  """

  masker: str = 'salient'
  split: str = 'train'
  valid_fraction: float = 0.0
  labels: tuple[str, ...] = ()

  def __post_init__(self):
    if self.masker not in masking.KINDS:
      raise ValueError(
        f'masker {self.masker!r}: expected one of {masking.KINDS}.'
      )


class MaskedSentences:
  """Blocks of X of which one sentence is masked, in random-access order.

  One pass takes every usable block once, and of its spans (or sentences) one at
  random, as the released code does with its records.

  Attributes:
    skipped: reason -> spans or sentences that cannot be used.
  """

  def __init__(
    self,
    blocks: blocks_lib.BlockStore,
    layout: examples.Layout,
    config: SourceConfig,
    spans: salient_lib.SalientStore | None = None,
  ):
    """Lists what can be masked.

    Args:
      blocks: of X.
      layout: lengths of rows.
      config: what is masked.
      spans: salient spans of `blocks`; needed by masker 'salient'.

    Raises:
      ValueError: when nothing can be masked.
    """
    self._blocks, self._layout, self._config = blocks, layout, config
    self._spans_fingerprint = ''
    self.skipped: dict[str, int] = {}
    if config.masker == 'salient':
      if spans is None:
        raise ValueError("masker 'salient' needs a store of salient spans.")
      self._spans_fingerprint = spans.fingerprint
      sentences, self._spans = self._salient_units(spans)
    else:
      sentences, self._spans = self._sentence_units(), None
    sentences, self._spans = self._of_split(sentences, self._spans)
    self._sentences = sentences
    unit_blocks = blocks.sentence_blocks(sentences)
    self._unit_blocks, self._first = np.unique(unit_blocks, return_index=True)
    self._end = np.append(self._first[1:], len(sentences))
    if not len(self._unit_blocks):
      raise ValueError(
        f'{blocks.path}: nothing to mask for {config} (skipped: '
        f'{self.skipped}).'
      )

  def _salient_units(self, spans) -> tuple[np.ndarray, np.ndarray]:
    """Sentence and relative token span of each usable span."""
    sentences = np.asarray(spans.sentence[:])
    found = np.stack([spans.token_start[:], spans.token_limit[:]], axis=1)
    if self._config.labels:
      unknown = sorted({*self._config.labels} - {*spans.labels})
      if unknown:
        raise ValueError(
          f'{spans.path}: no spans are labelled {unknown}; the labels are '
          f'{sorted(spans.labels)}.'
        )
      wanted = [spans.labels.index(name) for name in self._config.labels]
      kept = np.isin(spans.label[:], wanted)
      sentences, found = sentences[kept], found[kept]
    relative = found - self._blocks.sentence_tokens(sentences)[:, :1]
    fits = relative[:, 1] <= self._layout.query_tokens
    self.skipped['beyond the query length'] = int((~fits).sum())
    return sentences[fits], relative[fits]

  def _sentence_units(self) -> np.ndarray:
    ids = np.arange(self._blocks.num_sentences)
    spans = self._blocks.sentence_tokens(ids)
    long_enough = spans[:, 1] - spans[:, 0] >= _LEAST_TOKENS
    self.skipped['short sentence'] = int((~long_enough).sum())
    return ids[long_enough]

  def _of_split(self, sentences, spans):
    config, blocks = self._config, self._blocks
    if config.split == 'all':
      return sentences, spans
    hashes = blocks.tokens.id_hash[:]
    chosen = chunks_lib.in_split(hashes, config.split, config.valid_fraction)
    kept = chosen[blocks.documents(blocks.sentence_blocks(sentences))]
    return sentences[kept], None if spans is None else spans[kept]

  def __len__(self) -> int:
    return len(self._unit_blocks)

  def __getitem__(self, i: int) -> int:
    return int(i)

  def __repr__(self) -> str:
    return f'MaskedSentences({self.fingerprint})'

  @property
  def fingerprint(self) -> str:
    """Hash of the data and of how they are masked."""
    return store.fingerprint(
      [
        self._blocks.fingerprint,
        self._spans_fingerprint,
        dataclasses.asdict(self._config),
        dataclasses.asdict(self._layout),
      ]
    )

  def example(self, i: int, rng: np.random.Generator) -> examples.Batch:
    """Masks a sentence of the i-th usable block.

    Args:
      i: number of the block in this source.
      rng: chooses the span, or the sentence and its tokens.

    Returns:
      As `examples.mask_sentence`, and origin [] int32 the block, origin_hash []
      uint64.
    """
    low, high = int(self._first[i]), int(self._end[i])
    unit = low + int(rng.integers(high - low))
    sentence = int(self._sentences[unit])
    tokens, counts = self._blocks.gather_sentences(
      np.asarray([sentence]), self._layout.query_tokens
    )
    tokens = tokens[0, : int(counts[0])]
    positions = self._positions(unit, sentence, len(tokens), rng)
    origin = int(self._unit_blocks[i])
    return examples.mask_sentence(self._layout, tokens, positions) | {
      'origin': np.int32(origin),
      'origin_hash': np.uint64(self._blocks.hashes(np.asarray([origin]))[0]),
    }

  def _positions(self, unit, sentence, length, rng) -> np.ndarray:
    if self._spans is not None:
      return masking.salient(self._spans[unit][None], rng)
    if self._config.masker == 'uniform':
      return masking.uniform(length, rng)
    return masking.spans(length, rng, self._continues(sentence, length))

  def _continues(self, sentence: int, length: int) -> np.ndarray:
    """Whether each token begins where the one before it ended."""
    blocks, ids = self._blocks, np.asarray([sentence])
    start = int(blocks.sentence_tokens(ids)[0, 0])
    document = int(blocks.documents(blocks.sentence_blocks(ids))[0])
    spans = blocks.tokens.token_bytes(document)[start : start + length]
    return np.append(False, spans[1:, 0] == spans[:-1, 1])


def exclude(
  ids: np.ndarray, hashes: np.ndarray, origin_hashes: np.ndarray, k: int
) -> np.ndarray:
  """The best k of what was found, without the block of origin.

  A block is known by the hash of its title and text, so that a copy of it in
  another corpus is the same block.

  Args:
    ids: [B, n] found, best first; negative for none.
    hashes: [B, n] uint64 of these blocks.
    origin_hashes: [B] uint64.
    k: how many to keep.

  Returns:
    [B, k] ids, best first, then `examples.NONE`.
  """
  kept = (ids >= 0) & (hashes != origin_hashes[:, None])
  order = np.argsort(~kept, axis=1, kind='stable')[:, :k]
  chosen = np.where(
    np.take_along_axis(kept, order, axis=1),
    np.take_along_axis(ids, order, axis=1),
    examples.NONE,
  )
  missing = ((0, 0), (0, k - chosen.shape[1]))
  return np.pad(chosen, missing, constant_values=examples.NONE)


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
      batch: stacked `MaskedSentences.example`s.

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
    return exclude(ids, self._hashes[np.maximum(ids, 0)], origins, k)


def make_dataset(
  source: MaskedSentences,
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
  # Equally many rows, or at the end one process would wait for the others.
  multiple_of = process_count if train else batch_size
  limit = len(rows) // multiple_of * multiple_of
  rows = rows[process_index:limit:process_count]
  if train:
    rows = rows.repeat()
  rows = rows.random_map(source.example)
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
  source: MaskedSentences, blocks: blocks_lib.BlockStore, schedule: str
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
