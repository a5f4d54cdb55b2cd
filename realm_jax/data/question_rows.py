# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of questions: tokenized once, shared among processes, resumable.

The trainer adds the blocks with its newest parameters.
"""

from collections.abc import Iterable, Sequence
import dataclasses
from typing import Any

import numpy as np

from realm_jax.data import examples, reader_rows
from retrieval import tokenization
from retrieval.questions import question_files
from retrieval.store import manifests
from retrieval.text import blocks as blocks_lib

NONE = -1  # index of a row of padding


class QuestionSource:
  """Questions as rows: a random-access source of indices for Grain."""

  def __init__(
    self,
    questions: Sequence[question_files.Question],
    tokenizer: tokenization.Tokenizer,
    layout: reader_rows.ReaderLayout,
  ):
    self.questions, self.layout = tuple(questions), layout
    texts = [question.question for question in self.questions]
    self._tokens = [e.ids for e in tokenizer.encode_batch(texts)]
    # token ids of the answers of kind 'string'
    strings = [x.answers if x.kind == 'string' else () for x in self.questions]
    flat = [answer for row in strings for answer in row]
    encodings = iter(tokenizer.encode_batch(flat) if flat else [])
    self._answers = [[next(encodings).ids for _ in row] for row in strings]
    self.fingerprint = manifests.fingerprint(
      [
        [dataclasses.asdict(question) for question in self.questions],
        tokenizer.fingerprint,
        dataclasses.asdict(layout),
      ]
    )

  def __len__(self) -> int:
    return len(self.questions)

  def __getitem__(self, i: int) -> int:
    return int(i)

  def __repr__(self) -> str:
    return f'QuestionSource({self.fingerprint})'

  def rows(self, indices: np.ndarray, size: int) -> examples.Batch:
    """Make rows of n questions, and rows of padding up to B = `size`.

    Returns:
      question_index [B] int32, NONE for padding; question_ids [B, Q] int32 and
      question_mask [B, Q] bool, [CLS] [SEP] for padding; row_valid [B] bool.
    """
    index = np.full(size, NONE, np.int32)
    index[: len(indices)] = indices
    rows = reader_rows.question_rows(self.layout, self.tokens(index))
    return {'question_index': index, **rows, 'row_valid': index >= 0}

  def tokens(self, indices: np.ndarray) -> list[np.ndarray]:
    """Token ids of whole questions, without specials; empty for NONE."""
    none = np.zeros(0, np.int32)
    return [self._tokens[i] if i >= 0 else none for i in indices.tolist()]

  def gold_fields(
    self,
    indices: np.ndarray,
    blocks: blocks_lib.BlockStore,
    block_ids: np.ndarray,
    rows: examples.Batch,
  ) -> examples.Batch:
    """Mark the answers in the reader's rows: reader_correct [B, R, W, L] bool.

    Args:
      indices: [B] of questions.
      block_ids: [B, R] blocks of the rows.
      rows: the reader's rows, of `reader_rows.reader_rows`.
    """
    indices = np.asarray(indices).tolist()
    tokens = [self._answers[i] if i >= 0 else () for i in indices]
    correct = reader_rows.token_spans(self.layout, rows, tokens)
    asked = [self.questions[i] if i >= 0 else None for i in indices]
    patterns = [x.answers if x and x.kind == 'regex' else () for x in asked]
    if any(patterns):
      correct |= reader_rows.pattern_spans(
        self.layout, blocks, block_ids, rows, patterns
      )
    return {'reader_correct': correct}


def make_dataset(
  source: QuestionSource,
  *,
  batch_size: int,
  train: bool,
  seed: int = 0,
  process_index: int = 0,
  process_count: int = 1,
  padded_size: int = 1,
  span: tuple[int, int] | None = None,
) -> Iterable[Any]:
  """Batches [rows / process_count, ...] of this process, checkpointable.

  Args:
    train: whether shuffled passes follow each other. Otherwise there is one
      pass in the source's order; padding fills its last batch, so that every
      question comes once and every process has equally many batches.
    padded_size: padding fills a global batch to a multiple of this number of
      rows, so that few questions can run on many devices.
    span: first and past-last question of the pass; None: all questions.

  Raises:
    ValueError: for a batch that the processes cannot share.
  """
  size = -(-batch_size // padded_size) * padded_size
  if size % process_count:
    raise ValueError(
      f'batch_size {batch_size} with padded_size {padded_size}: {size} rows, '
      f'expected a multiple of the {process_count} process(es).'
    )
  import grain  # a second, with Orbax; who only reads goes without

  indices = grain.MapDataset.source(source).seed(seed)
  if span is not None:
    indices = indices[slice(*span)]
  if train:
    indices = indices.shuffle().repeat()
  # Batching precedes sharing, so that batches do not depend on the processes.
  batches = indices.batch(batch_size, batch_fn=np.asarray)
  return batches.map(
    lambda batch: source.rows(
      batch[process_index::process_count], size // process_count
    )
  ).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))
