# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers questions with a trained model: on all local devices, in batches."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools

import jax
import numpy as np

from experiments.open_qa import block_reader
from experiments.open_qa import task as qa_task
from realm_jax.data import examples
from realm_jax.data import question_rows
from realm_jax.serving import answer_text
from realm_jax.serving import beams
from realm_jax.serving import predict
from retrieval.questions import questions as questions_lib
from retrieval.text import blocks as blocks_lib


@dataclasses.dataclass(frozen=True)
class Answer:
  """One span of one block.

  Attributes:
    text: exactly as it stands in the block.
    score: of block and span together, a logit.
    probability: among all spans that were kept of this question.
    block: its id.
    rank: of the block among those retrieved, from 0.
    correct: whether the span is gold; False where nothing gold is known.
    start: position of the first token in the reader's row.
    width: tokens.
    reader_start: position of the block's first token in the row.
  """

  text: str
  score: float
  probability: float
  block: int
  rank: int
  correct: bool
  start: int
  width: int
  reader_start: int

  def highlight(
    self, blocks: blocks_lib.BlockStore
  ) -> tuple[str, tuple[int, int]]:
    """The block's text, and the answer's first and past-last character."""
    return answer_text.highlight(
      blocks, self.block, self.start, self.width, self.reader_start
    )


@dataclasses.dataclass(frozen=True)
class Answered:
  """A question and what was found for it.

  Attributes:
    question: as it was asked.
    answers: best first; may be none.
    beam: [C] int32 block ids, best first; -1 for none.
    reader_oracle: whether a gold span stands in a block that was read.
  """

  question: questions_lib.Question
  answers: tuple[Answer, ...]
  beam: np.ndarray
  reader_oracle: bool

  @property
  def text(self) -> str:
    """The best answer, '' if there is none."""
    return self.answers[0].text if self.answers else ''

  def cut(self, depth: int) -> 'Answered':
    """The same with but the first blocks of its beam."""
    return dataclasses.replace(self, beam=self.beam[:depth].copy())


class Answerer:
  """Retrieves, reads and answers.

  Attributes:
    trained: the model with its data.
  """

  def __init__(
    self,
    trained: qa_task.Trained,
    retriever: beams.Retriever,
    *,
    retriever_beam: int = 0,
    reader_beam: int = 0,
    batch_size: int = 1,
    read_at_once: int = 16,
    num_answers: int = 5,
  ):
    """Places the parameters; compiles at the first question.

    Args:
      trained: the model with its data.
      retriever: finds blocks.
      retriever_beam: blocks that are looked at; 0: as in training.
      reader_beam: blocks that are read; 0: as in training.
      batch_size: questions at a time, filled up to a multiple of the devices.
      read_at_once: blocks that one device reads at a time.
      num_answers: kept of each question.
    """
    self.trained = trained
    self._layout = qa_task.reader_layout(trained.config, trained.data)
    lookup = qa_task.make_lookup(
      trained.config,
      trained.data,
      retriever,
      retriever_beam=retriever_beam,
      reader_beam=reader_beam,
      search=False,
    )
    self._read = block_reader.BlockReader(
      trained.params,
      lookup,
      functools.partial(
        predict.predict,
        trained.model,
        num_answers=num_answers,
        read_at_once=read_at_once,
      ),
      batch_size,
    )

  def __call__(
    self,
    questions: Sequence[questions_lib.Question],
    progress: Callable[[int, int], None] | None = None,
  ) -> Iterator[Answered]:
    """Answers questions, in their order.

    Args:
      questions: with answers where gold spans are to be known.
      progress: called with (questions done, questions in all).

    Yields:
      Each question with its answers.
    """
    source = question_rows.QuestionSource(
      questions, self.trained.data.tokenizer, self._layout
    )
    for index, batch, found, row in self._read(source, progress):
      yield self._answered(questions[index], batch, found, row)

  def _answered(
    self,
    question: questions_lib.Question,
    batch: examples.Batch,
    found: predict.Prediction,
    i: int,
  ) -> Answered:
    spans = jax.tree.map(lambda x: x[i], found.spans)
    kept = np.flatnonzero(spans.block >= 0)
    ranks = spans.block[kept]
    starts = batch['reader_starts'][i, ranks]
    ids = batch['beam_ids'][i, ranks]
    texts = answer_text.answer_texts(
      self.trained.data.blocks,
      ids,
      spans.start[kept],
      spans.width[kept],
      starts,
    )
    scores = spans.score[kept].astype(np.float64)
    shares = np.exp(scores - scores.max()) if len(kept) else scores
    answers = tuple(
      Answer(*row)
      for row in zip(
        texts,
        scores.tolist(),
        (shares / max(shares.sum(), 1e-30)).tolist(),
        ids.tolist(),
        ranks.tolist(),
        found.correct[i, kept].tolist(),
        spans.start[kept].tolist(),
        spans.width[kept].tolist(),
        starts.tolist(),
        strict=True,
      )
    )
    return Answered(
      question,
      answers,
      batch['beam_ids'][i].copy(),  # else it would keep the whole batch
      bool(batch['reader_correct'][i].any()),
    )
