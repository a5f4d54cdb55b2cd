# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of questions with passages and an answer, checkpointable."""

from collections.abc import Sequence
import dataclasses

import grain
import numpy as np

from retrieval.store import store
from retro_jax.data import pipeline, qa_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """A question to be trained on."""

  question: str  # its text
  # any of them is right; one is drawn each time the question comes
  answers: tuple[str, ...]
  passages: tuple[qa_rows.Passage, ...] = ()  # best first


@dataclasses.dataclass(frozen=True)
class _Questions:
  """Numbers of examples: a random-access source for Grain; -1 pads a pass."""

  count: int
  multiple_of: int

  def __len__(self) -> int:
    return -(-self.count // self.multiple_of) * self.multiple_of

  def __getitem__(self, i: int) -> int:
    return int(i) if i < self.count else -1

  def __repr__(self) -> str:
    return f'Questions({self.count}, {self.multiple_of})'


class _WriteRow(grain.transforms.RandomMap):
  """Writes the row of an example, with one of its answers."""

  def __init__(self, examples: Sequence[Example], writer: qa_rows.QaWriter):
    self._examples, self._writer = examples, writer
    self._empty = {
      name: np.zeros_like(value) for name, value in writer.row('', '').items()
    }

  def random_map(self, element: int, rng: np.random.Generator) -> pipeline.Row:
    """The row of example number `element`; an empty one for -1."""
    if element < 0:
      return self._empty
    example = self._examples[element]
    answer = example.answers[int(rng.integers(len(example.answers)))]
    return self._writer.row(example.question, answer, example.passages)


def make_dataset(
  examples: Sequence[Example],
  writer: qa_rows.QaWriter,
  *,
  batch_size: int,
  train: bool,
  seed: int = 0,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.IterDataset:
  """Batches of rows of this process.

  Args:
    examples: at least one.
    train: shuffled anew in every pass and without end; otherwise one pass in
      order, the last batch filled with empty rows.
    seed: of the shuffle and of the answers drawn.
    process_count: processes that share a batch.

  Returns:
    A dataset of `QaWriter.row`'s rows, [batch_size / process_count, ...].

  Raises:
    ValueError: without an example, or for a batch that cannot be shared.
  """
  if not examples:
    raise ValueError('No questions: expected at least one with an answer.')
  if batch_size < 1 or batch_size % process_count:
    raise ValueError(
      f'batch_size {batch_size}: expected a multiple of the {process_count} '
      'process(es).'
    )
  multiple_of = process_count if train else batch_size
  rows = grain.MapDataset.source(_Questions(len(examples), multiple_of))
  rows = rows.seed(seed)
  if train:
    rows = rows.shuffle()
  rows = rows[process_index::process_count]
  if train:
    rows = rows.repeat()
  rows = rows.random_map(_WriteRow(examples, writer))
  rows = rows.batch(batch_size // process_count, drop_remainder=True)
  return rows.to_iter_dataset(grain.ReadOptions(num_threads=1))


def fingerprint(examples: Sequence[Example], writer: qa_rows.QaWriter) -> str:
  """Hash of the rows that a dataset gives, seed and batch apart."""
  return store.fingerprint(
    [
      [dataclasses.asdict(example) for example in examples],
      writer.tokenizer.fingerprint,
      dataclasses.asdict(writer.layout),
      writer.form,
    ]
  )
