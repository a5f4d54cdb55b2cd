# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers with their sources."""

import dataclasses
import functools
from typing import Any
import unicodedata

import numpy as np
import regex

from realm_jax.trained import views
from retrieval import text_table
from retrieval.questions import (
  abstention,
  qa_metrics,
  question_files,
)
from retrieval.text import blocks as blocks_lib

# Letters of words; scripts without blanks between words have none.
_LETTER = regex.compile(
  r'[[\p{L}\p{N}\p{M}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}'
  r'\p{Khmer}\p{Myanmar}]]',
  regex.VERSION1,
)


@dataclasses.dataclass(frozen=True)
class Answer:
  """One span of one block."""

  blocks: blocks_lib.BlockStore = dataclasses.field(compare=False)
  block: int
  rank: int  # of the block among the retrieved ones, from 0
  start: int  # position of the first token in the reader's row
  width: int
  reader_start: int  # position of the block's first token in the row
  score: float  # score of block and span together, a logit
  # Share of the likelihood of all spans kept of this question; of a reader with a
  # null answer the probability beside all spans that were read and this answer.
  share: float
  correct: bool  # whether the span is gold; False without gold answers

  def __repr__(self) -> str:
    return (
      f'Answer(text={self.text!r}, score={self.score:.4g}, '
      f'share={self.share:.4g}, title={self.title!r})'
    )

  @functools.cached_property
  def text(self) -> str:
    """The answer as it is spelled in the block."""
    text, span = self.highlight()
    return text[slice(*span)]

  @property
  def title(self) -> str:
    """Title of the document."""
    return self.blocks.titles([self.block])[0]

  @property
  def document(self) -> str:
    """Id of the document."""
    number = int(self.blocks.documents(np.asarray([self.block]))[0])
    return self.blocks.tokens.document_id(number)

  @property
  def source(self) -> str:
    """Title and id of the document; one of them where they are equal or none."""
    title, document = self.title, self.document
    if not title or title == document:
      return document
    return f'{title} (document {document})'

  def highlight(self) -> tuple[str, tuple[int, int]]:
    """Return the block's text, and the answer's first and past-last character.

    A span that begins or ends inside of a word is shown with the whole word.
    """
    return self._shown

  @functools.cached_property
  def _shown(self) -> tuple[str, tuple[int, int]]:
    text, span = highlight(
      self.blocks, self.block, self.start, self.width, self.reader_start
    )
    return text, whole_words(text, span)

  def repeats(self, other: 'Answer') -> bool:
    """Whether both overlap in a block, or are equal as scores compare answers."""
    if self.block == other.block:
      (low, high), (first, limit) = self.highlight()[1], other.highlight()[1]
      if low < limit and first < high:
        return True
    return qa_metrics.exact_match(self.text, other.text)

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


@dataclasses.dataclass(frozen=True, repr=False)
class Answered:
  """A question with its answers."""

  question: question_files.Question
  answers: tuple[Answer, ...]  # best first; empty where no block was found
  # [C] int32 ids of the retrieved blocks, best first; -1 for none
  beam: np.ndarray
  reader_oracle: bool  # whether a block that was read holds a gold span
  blocks: blocks_lib.BlockStore | None = dataclasses.field(
    default=None, repr=False, compare=False
  )
  # probability that the blocks read hold an answer; 1 without a null answer
  answerable: float = 1.0
  threshold: float = 0.0  # least confidence that is not silent
  calibration: abstention.Calibration | None = dataclasses.field(
    default=None, repr=False, compare=False
  )

  @property
  def text(self) -> str:
    """The best answer; '' without one, or where the reader is silent."""
    return '' if self.silent or not self.answers else self.answers[0].text

  @functools.cached_property
  def confidence(self) -> float:
    """Share of the best answer and all that repeat it; 0 without one."""
    return self.best(1)[0].share if self.answers else 0.0

  @property
  def probability(self) -> float | None:
    """Calibrated probability that the best answer is right; None if not measured."""
    found = self.calibration
    return None if found is None else found.probability(self.confidence)

  @property
  def null_is_likelier(self) -> bool:
    """Whether "no answer" has a larger share than the best answer."""
    return self.confidence < 1 - self.answerable

  @property
  def silent(self) -> bool:
    """Whether the confidence is below the threshold."""
    return self.threshold > 0 and self.confidence < self.threshold

  def best(self, count: int = 5) -> list[Answer]:
    """Return the `count` best answers; each has the shares of its repeats, too."""
    groups: list[list[Answer]] = []
    for answer in self.answers:
      same = next((x for x in groups if answer.repeats(x[0])), None)
      if same is not None:
        same.append(answer)
      elif len(groups) < count:
        groups.append([answer])
    return [
      dataclasses.replace(x[0], share=sum(y.share for y in x)) for x in groups
    ]

  def __repr__(self) -> str:
    shown, table = views.silence(self), ''
    if not shown:
      rows = [(x.text, f'{x.share:.3f}', x.source) for x in self.best()]
      table = text_table.lines(('answer', 'share', 'source'), rows)
    return f'{self.question.question}\n{shown or table}'

  def record(self, count: int = 5) -> dict[str, Any]:
    """Return a line of a predictions file, with up to `count` answers.

    Where the reader is silent all of them are runner-ups.
    """
    rows = [answer.record() for answer in self.best(count)]
    line = {
      'id': self.question.id,
      'question': self.question.question,
      'prediction': self.text,
      'answerable': self.answerable,
      'probability': self.probability,
    }
    if rows and not self.silent:
      line |= rows.pop(0)
    return line | {'runner_ups': rows}

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
      f'(share {found.confidence:.2f}, {found.answers[0].title})'
      if found.text
      else f'{found.question.question} (no answer)'
      for found in self
    )

  def _repr_html_(self) -> str:
    return ''.join(views.answers_html(found) for found in self)


def whole_words(text: str, span: tuple[int, int]) -> tuple[int, int]:
  """Return a span of characters, widened to the words it begins and ends in."""
  begin, end = span

  def inside(at: int) -> bool:
    return 0 < at < len(text) and all(
      _LETTER.match(character) for character in text[at - 1 : at + 1]
    )

  while inside(begin):
    begin -= 1
  while inside(end):
    end += 1
  return begin, end


def highlight(
  blocks: blocks_lib.BlockStore,
  block_id: int,
  start: int,
  width: int,
  reader_start: int,
) -> tuple[str, tuple[int, int]]:
  """Return a block's text, and the first and past-last character of an answer.

  Marks of the last character belong to the answer. `start` and `reader_start`
  (of the block) are tokens of the reader's row; block_id = -1 gives '', (0, 0).

  Raises:
    ValueError: for a span outside of the block's tokens.
  """
  if block_id < 0:
    return '', (0, 0)
  ids = np.asarray([block_id])
  [(first, limit)] = blocks.token_spans(ids).tolist()
  at = first + start - reader_start
  if width < 1 or at < first or at + width > limit:
    raise ValueError(
      f'Block {block_id}: a span of {width} token(s) at {start - reader_start}, '
      f'expected one within its {limit - first}.'
    )
  [(low, high)] = blocks.byte_spans(ids).tolist()
  document = int(blocks.documents(ids)[0])
  offsets = blocks.tokens.token_bytes(document)[at : at + width]
  raw = blocks.tokens.text_bytes(document)[low:high]
  begin, end = int(offsets[0, 0]) - low, int(offsets[-1, 1]) - low
  while begin and raw[begin] & 0xC0 == 0x80:  # a token of single bytes
    begin -= 1
  while end < len(raw) and raw[end] & 0xC0 == 0x80:
    end += 1
  text = raw.decode()
  begin, end = len(raw[:begin].decode()), len(raw[:end].decode())
  # Marks that the tokenizer drops are of no token.
  while end < len(text) and unicodedata.combining(text[end]):
    end += 1
  return text, (begin, end)
