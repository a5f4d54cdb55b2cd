# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of questions with passages and an answer, checkpointable."""

from collections.abc import Iterable, Sequence
import dataclasses

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
class _Numbers:
  """Numbers of examples: a random-access source for Grain; -1 pads a pass."""

  count: int
  multiple_of: int

  def __len__(self) -> int:
    return -(-self.count // self.multiple_of) * self.multiple_of

  def __getitem__(self, i: int) -> int:
    return int(i) if i < self.count else -1


def make_dataset(
  examples: Sequence[Example],
  writer: qa_rows.QaWriter,
  *,
  train: bool,
  batch_size: int,
  process_count: int = 1,
  **settings,
) -> Iterable[pipeline.Row]:
  """Batches of `QaWriter.row`'s rows, each with one of its answers.

  Args:
    examples: at least one.
    train: see `pipeline.make_dataset`; the last batch of a pass has empty rows.
    **settings: other arguments of `pipeline.batches`.

  Raises:
    ValueError: without an example, or for a batch that cannot be shared.
  """
  if not examples:
    raise ValueError('No questions: expected at least one with an answer.')
  empty = {
    name: np.zeros_like(value) for name, value in writer.row('', '').items()
  }

  def write(number: int, rng: np.random.Generator) -> pipeline.Row:
    if number < 0:
      return empty
    example = examples[number]
    answer = example.answers[int(rng.integers(len(example.answers)))]
    return writer.row(example.question, answer, example.passages)

  return pipeline.batches(
    _Numbers(len(examples), process_count if train else batch_size),
    train=train,
    batch_size=batch_size,
    process_count=process_count,
    choose=write,
    **settings,
  )


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
