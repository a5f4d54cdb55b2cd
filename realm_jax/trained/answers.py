# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers with their sources, and the characters of their spans."""

import dataclasses
import functools
import html
from typing import Any
import unicodedata

import numpy as np
import regex

from retrieval import text_table
from retrieval.questions import abstention, qa_metrics, question_files
from retrieval.text import blocks as blocks_lib

NOTHING = 'no block was found'
SILENT = 'no answer in these documents'
UNSURE = 'no answer that is sure enough'
# Letters of words; scripts without blanks between words have none.
_LETTER = regex.compile(
  r'[[\p{L}\p{N}\p{M}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}'
  r'\p{Khmer}\p{Myanmar}]]',
  regex.VERSION1,
)
RUNNER_UPS = ('runner-up', 'logit', 'share', 'source')  # columns


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
  # Share of the likelihood of the question's best spans; of a reader with a
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
    text, span = self.highlight
    return text[slice(*span)]

  @property
  def title(self) -> str:
    """Title of the document."""
    return self.blocks.titles([self.block])[0]

  @property
  def document(self) -> str:
    """Id of the document."""
    number = int(self.blocks.documents(np.asarray(self.block)))
    return self.blocks.tokens.document_id(number)

  @property
  def source(self) -> str:
    """Title and id of the document; one of them where they are equal or none."""
    title, document = self.title, self.document
    if not title or title == document:
      return document
    return f'{title} (document {document})'

  @functools.cached_property
  def highlight(self) -> tuple[str, tuple[int, int]]:
    """The block's text, and the answer's first and past-last character.

    A span that begins or ends inside of a word is shown with the whole word.
    """
    text, span = self.characters()
    return text, whole_words(text, span)

  def characters(self) -> tuple[str, tuple[int, int]]:
    """Return the text, and the characters of the answer's tokens alone.

    Marks of the last character belong to the answer.
    """
    blocks, block = self.blocks, self.block
    [document] = blocks.documents(np.asarray([block])).tolist()
    [text] = blocks.texts([block])
    at = blocks.token_spans[block][0] + self.start - self.reader_start
    offsets = blocks.tokens.token_bytes(document)[at : at + self.width]
    offsets = offsets - blocks.byte_spans[block][0]
    begin, end = (
      len(text.encode()[:x].decode()) for x in (offsets[0, 0], offsets[-1, 1])
    )
    # Marks that the tokenizer drops are of no token.
    while end < len(text) and unicodedata.combining(text[end]):
      end += 1
    return text, (begin, end)

  def repeats(self, other: 'Answer') -> bool:
    """Whether both overlap in a block, or are equal as scores compare answers."""
    if self.block == other.block:
      (low, high), (first, limit) = self.highlight[1], other.highlight[1]
      if low < limit and first < high:
        return True
    return qa_metrics.exact_match(self.text, other.text)

  @property
  def cells(self) -> tuple[str, ...]:
    """The row of a table with the columns `RUNNER_UPS`."""
    return self.text, f'{self.score:.2f}', f'{self.share:.3f}', self.source

  def record(self) -> dict[str, Any]:
    """Return the answer and its source as JSON values.

    `document` is an id, `block` a number, `text` that of the block, and `span`
    the characters of the answer in it.
    """
    text, span = self.highlight
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
class Answered(text_table.Short):
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
    if self.calibration is None:
      return None
    return self.calibration.probability(self.confidence)

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

  def silence(self, count: int = 5) -> str:
    """Return the 'no answer' message with the best sources; '' for an answer."""
    if not self.answers:
      return NOTHING
    if not self.silent:
      return ''
    sources = dict.fromkeys(answer.source for answer in self.best(count))
    why = SILENT if self.null_is_likelier else UNSURE
    return (
      f'{why} (best share {self.confidence:.2f}, none '
      f'{1 - self.answerable:.2f}); best sources: {"; ".join(sources)}'
    )

  def figures(self) -> str:
    """Return logit and share of the best answer."""
    return f'logit {self.best(1)[0].score:.2f}, share {self.confidence:.3f}'

  def calibrated(self) -> str:
    """Return how often such answers were right; '' if not measured."""
    if self.calibration is None:
      return ''
    return self.calibration.in_words(self.confidence)

  def __str__(self) -> str:
    message, table = self.silence(), ''
    if not message:
      rows = [(x.text, f'{x.share:.3f}', x.source) for x in self.best()]
      table = text_table.lines(('answer', 'share', 'source'), rows)
    return f'{self.question.question}\n{message or table}'

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

  def to_html(self, count: int = 5) -> str:
    """Return a question, its answer in its block, and `count` - 1 runner-ups."""
    page = f'<p><b>{html.escape(self.question.question)}</b><br>'
    if message := self.silence(count):
      return f'{page}{html.escape(message)}</p>'
    first, *others = self.best(count)
    page += (
      f'<b style="color: green">{html.escape(first.text)}</b> '
      f'({self.figures()})<br>{html.escape(self.calibrated())}</p>'
      f'{block_html(first.title, *first.highlight)}'
    )
    if others:
      page += text_table.to_html(RUNNER_UPS, (x.cells for x in others))
    return page

  def _repr_html_(self) -> str:
    return self.to_html()

  def blocks_html(self, count: int = 3) -> str:
    """Return HTML of the first blocks, each with its best answer marked."""
    best: dict[int, Answer] = {}
    for answer in self.answers:
      best.setdefault(answer.rank, answer)
    rows = []
    for rank, block in enumerate(self.beam[:count].tolist()):
      if rank in best:
        shown = best[rank].highlight
      elif block >= 0:
        shown = self.blocks.texts([block])[0], (0, 0)
      else:
        continue
      title = self.blocks.titles([block])[0]
      rows.append(f'<li>{block_html(title, *shown)}</li>')
    return f'<ol>{"".join(rows)}</ol>' if rows else f'<p>{NOTHING}</p>'


class Answers(text_table.Short, tuple[Answered, ...]):
  """Questions with their answers; a notebook shows them with their sources."""

  __slots__ = ()

  def __str__(self) -> str:
    return '\n'.join(
      f'{x.question.question} {x.text} '
      f'(share {x.confidence:.2f}, {x.answers[0].title})'
      if x.text
      else f'{x.question.question} (no answer)'
      for x in self
    )

  def _repr_html_(self) -> str:
    return ''.join(x.to_html() for x in self)


def block_html(title: str, text: str, span: tuple[int, int]) -> str:
  """Return title and text of a block, its span of characters marked."""
  start, end = span
  before, marked, after = map(
    html.escape, (text[:start], text[start:end], text[end:])
  )
  marked = f'<mark>{marked}</mark>' if marked else ''
  return f'<p><i>{html.escape(title)}</i>: {before}{marked}{after}</p>'


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
