# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answer questions with a trained model, in batches on all local devices."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from realm_jax.data import examples
from realm_jax.serving import (
  answer_text,
  beams,
  block_reader,
  predict,
  trained_model,
  views,
)
from retrieval.questions import questions as questions_lib
from retrieval.text import blocks as blocks_lib


@dataclasses.dataclass(frozen=True)
class Answer:
  """One span of one block."""

  text: str
  score: float  # score of block and span together, a logit
  share: float  # share of the likelihood of all spans kept of this question
  block: int
  rank: int  # of the block among the retrieved ones, from 0
  correct: bool  # whether the span is gold; False without gold answers
  start: int  # position of the first token in the reader's row
  width: int
  reader_start: int  # position of the block's first token in the row
  blocks: blocks_lib.BlockStore = dataclasses.field(repr=False, compare=False)

  @property
  def title(self) -> str:
    """Title of the document."""
    return self.blocks.titles([self.block])[0]

  @property
  def document(self) -> str:
    """Id of the document."""
    number = int(self.blocks.documents(np.asarray([self.block]))[0])
    return self.blocks.tokens.document_id(number)

  def highlight(self) -> tuple[str, tuple[int, int]]:
    """Return the block's text, and the answer's first and past-last character."""
    return answer_text.highlight(
      self.blocks, self.block, self.start, self.width, self.reader_start
    )

  def record(self) -> dict[str, Any]:
    """Return the answer and its source as JSON values.

    `document` is an id, `block` a number, `text` that of the block, and `span`
    the characters of the answer in it.
    """
    text, span = self.highlight()
    return {
      'answer': self.text,
      'score': self.score,
      'share': self.share,
      'title': self.title,
      'document': self.document,
      'block': self.block,
      'text': text,
      'span': list(span),
    }


@dataclasses.dataclass(frozen=True)
class Answered:
  """A question with its answers."""

  question: questions_lib.Question
  answers: tuple[Answer, ...]  # best first; empty where no block was found
  # [C] int32 ids of the retrieved blocks, best first; -1 for none
  beam: np.ndarray
  reader_oracle: bool  # whether a block that was read holds a gold span
  blocks: blocks_lib.BlockStore | None = dataclasses.field(
    default=None, repr=False, compare=False
  )

  @property
  def text(self) -> str:
    """The best answer; '' without one."""
    return self.answers[0].text if self.answers else ''

  def record(self, count: int = 5) -> dict[str, Any]:
    """Return a line of a predictions file, with up to `count` answers."""
    rows = [answer.record() for answer in self.answers[:count]]
    line = {
      'id': self.question.id,
      'question': self.question.question,
      'prediction': self.text,
    }
    return line | (rows[0] if rows else {}) | {'runner_ups': rows[1:]}

  def _repr_html_(self) -> str:
    return views.answers_html(self)

  def blocks_html(self, count: int = 3) -> str:
    """Return HTML of the first blocks, each with its best answer marked."""
    return views.blocks_html(self, count)


class Answers(tuple[Answered, ...]):
  """Questions with their answers; a notebook shows them with their sources."""

  __slots__ = ()

  def __repr__(self) -> str:
    return '\n'.join(
      f'{found.question.question} {found.text} '
      f'(share {found.answers[0].share:.2f}, {found.answers[0].title})'
      if found.answers
      else f'{found.question.question} (no answer)'
      for found in self
    )

  def _repr_html_(self) -> str:
    return ''.join(views.answers_html(found) for found in self)


class Answerer(block_reader.BlockReader):
  """Retrieves, reads and answers; yields each question as `Answered`."""

  def __init__(
    self,
    trained: trained_model.TrainedModel,
    retriever: beams.BeamRetriever,
    *,
    read_at_once: int = 0,
    num_answers: int = 5,
    **batches: int,
  ):
    """Place the parameters; compile at the first question.

    Args:
      read_at_once: blocks that one device reads at a time; 0 goes by device.
      **batches: retriever_beam, reader_beam, batch_size of `BlockReader`.
    """
    read = functools.partial(
      predict.predict,
      trained.model,
      num_answers=num_answers,
      read_at_once=read_at_once,
    )
    super().__init__(trained, retriever, read, search=False, **batches)

  def answer(self, texts: Sequence[str]) -> Answers:
    """Answer questions that are texts; ValueError for an empty one."""
    for i, text in enumerate(texts):
      if not text.strip():
        raise ValueError(f'Question {i} is empty: expected text.')
    return Answers(
      self([questions_lib.Question(f'{i}', x, ()) for i, x in enumerate(texts)])
    )

  def _result(
    self,
    asked: questions_lib.Question,
    batch: examples.Batch,
    found: predict.Prediction,
    row: int,
  ) -> Answered:
    spans = jax.tree.map(lambda x: x[row], found.spans)
    kept = np.flatnonzero(spans.block >= 0)
    ranks = spans.block[kept]
    starts = batch['reader_starts'][row, ranks]
    ids = batch['beam_ids'][row, ranks]
    blocks = self.trained.data.blocks
    texts = answer_text.answer_texts(
      blocks, ids, spans.start[kept], spans.width[kept], starts
    )
    scores = spans.score[kept].astype(np.float64)
    shares = np.exp(scores - scores.max()) if len(kept) else scores
    answers = tuple(
      Answer(*values, blocks=blocks)
      for values in zip(
        texts,
        scores.tolist(),
        (shares / max(shares.sum(), 1e-30)).tolist(),
        ids.tolist(),
        ranks.tolist(),
        found.correct[row, kept].tolist(),
        spans.start[kept].tolist(),
        spans.width[kept].tolist(),
        starts.tolist(),
        strict=True,
      )
    )
    return Answered(
      asked,
      answers,
      batch['beam_ids'][row].copy(),  # else it would keep the whole batch
      bool(batch['reader_correct'][row].any()),
      blocks,
    )
