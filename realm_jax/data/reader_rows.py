# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of the reader, and the answers among their spans.

Lee et al. 2019 (ORQA), section 5; Guu et al. 2020 (REALM), section 3.3:

  question  [CLS] q [SEP]               read by the query embedder
  reader    [CLS] q [SEP] body [SEP]    segments 0 up to the first [SEP], then 1
            [CLS] q [SEP] title [SEP] body [SEP]   where title_length > 0

The papers' readers read no title. A title is cut to title_length, the body to the
room that question and title leave; an empty title keeps its [SEP]. Answers are in
the body alone.

Dimension key: B questions, R blocks of each, L row, Q question row, W most
tokens of a span; entry [w, s] of spans is the w + 1 tokens s to s + w.
"""

from collections.abc import Sequence
import dataclasses
from typing import Annotated

import numpy as np

from realm_jax.data import examples
from retrieval import settings
from retrieval.questions import answers as answers_lib
from retrieval.text import blocks as blocks_lib

_SPECIALS = 3  # [CLS], [SEP], [SEP]; one more with titles
RowLength = Annotated[int, settings.Range(_SPECIALS + 1, 2**17)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
  """Questions with their passages, in place of question sets and a retriever."""

  # Files of `dpr_json.read_results`. Those with the same question and answers are
  # joined. (): question sets, whose blocks the retriever finds.
  train: tuple[str, ...] = ()
  valid: tuple[str, ...] = ()
  blocks: settings.Size = 1  # R; in training one holds an answer, if any does
  # share of training questions read without the blocks that answer them
  no_answer: settings.Rate = 0.15
  # share of training questions read without their question mark
  no_mark: settings.Rate = 0.3

  __post_init__ = settings.check


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderLayout:
  """Lengths of rows, and the tokenizer's special ids."""

  # L, question, block and specials (released code: 288 + 32)
  row_length: RowLength = 320
  question_length: examples.QueryLength = 64  # Q, [CLS] and [SEP] included
  # most tokens of a title; 0: titles are not read (paper)
  title_length: settings.Count = 0
  # W (released code: 10)
  max_span_width: Annotated[int, settings.Range(1, 1024)] = 10
  cls_id: settings.Count = 101
  sep_id: settings.Count = 102
  pad_id: settings.Count = 0

  def __post_init__(self):
    settings.check(self)
    # Beside a title, a token of the body needs room, too.
    longest = max(0, self.row_length - _SPECIALS - 2)
    most = {'title_length': longest, 'max_span_width': self.row_length}
    for name, limit in most.items():
      if (value := getattr(self, name)) > limit:
        raise settings.SettingsError(name, value, f'at most {limit}')


def question_rows(
  layout: ReaderLayout, questions: Sequence[np.ndarray]
) -> examples.Batch:
  """Make question_ids [B, Q] int32, cut to Q - 2, and question_mask bool."""
  texts = examples.pad(questions, layout.question_length - 2)
  ids, mask, _ = examples.join(layout, layout.question_length, texts)
  return {'question_ids': ids, 'question_mask': mask}


def reader_rows(
  layout: ReaderLayout,
  blocks: blocks_lib.BlockStore,
  block_ids: np.ndarray,
  questions: Sequence[np.ndarray],
) -> examples.Batch:
  """Make rows of the reader.

  A question is cut only if it does not fit alone, a title only if it does not fit
  without its body. The row of a missing block has an empty title and body.

  Args:
    block_ids: [B, R], -1 for a missing block.
    questions: [B] token ids of each, without specials.

  Returns:
    reader_ids, reader_types [B, R, L] int32; reader_mask, reader_block_mask [B,
    R, L] bool, the tokens of the row and of its body; reader_valid [B, R]
    bool; reader_starts [B, R] int32, the position of the body's first token.
  """
  titled = layout.title_length > 0
  shape, room = block_ids.shape, layout.row_length - _SPECIALS - titled
  tokens, counts = examples.pad(questions, room)
  repeated = np.repeat(np.arange(shape[0]), shape[1])
  present = np.where(block_ids >= 0, block_ids, -1).reshape(-1)
  texts, left = [(tokens[repeated], counts[repeated])], room - counts[repeated]
  if titled:
    titles, title_counts = blocks.gather_titles(present, layout.title_length)
    texts.append((titles, np.minimum(title_counts, left)))
    left = left - texts[1][1]
  bodies, body_counts = blocks.gather(present, room)
  body_counts = np.minimum(body_counts, left)
  rows = examples.join(layout, layout.row_length, *texts, (bodies, body_counts))
  starts = (1 + sum(count + 1 for _, count in texts)).astype(np.int32)
  at = np.arange(layout.row_length) - starts[:, None]
  inside = (at >= 0) & (at < body_counts[:, None])
  return {
    **examples.name_rows('reader', rows, shape),
    'reader_block_mask': inside.reshape(*shape, -1),
    'reader_valid': block_ids >= 0,
    'reader_starts': starts.reshape(shape),
  }


def token_spans(
  layout: ReaderLayout,
  rows: examples.Batch,
  answers: Sequence[Sequence[np.ndarray]],
) -> np.ndarray:
  """Mark the spans of a block with an answer's token ids: [B, R, W, L] bool.

  `answers` [B] are token ids of each answer, tokenized alone. Answers of no
  token or more than W tokens have no span.
  """
  ids, inside = rows['reader_ids'], rows['reader_block_mask']
  correct = _no_spans(layout, ids.shape)
  for i, of_one in enumerate(answers):
    for answer in of_one:
      width = len(answer)
      if not 0 < width <= layout.max_span_width:
        continue
      limit = layout.row_length - width + 1
      # A block is contiguous: if both ends are inside, all tokens are.
      hits = inside[i, :, :limit] & inside[i, :, width - 1 :]
      for offset, token in enumerate(np.asarray(answer).tolist()):
        hits &= ids[i, :, offset : limit + offset] == token
      correct[i, :, width - 1, :limit] |= hits
  return correct


def pattern_spans(
  layout: ReaderLayout,
  blocks: blocks_lib.BlockStore,
  block_ids: np.ndarray,
  rows: examples.Batch,
  answers: Sequence[Sequence[str]],
) -> np.ndarray:
  """Mark the spans of a block that a regular expression matches: [B, R, W, L].

  The search is that of rule 'regex' of `retrieval.questions.answers`. A match covers
  every token of which it covers a part.

  Args:
    block_ids: [B, R], -1 for a missing block.
    answers: [B] expressions of each question; an invalid one matches nothing.
  """
  counts = rows['reader_block_mask'].sum(axis=-1)
  correct = _no_spans(layout, rows['reader_ids'].shape)
  for i, patterns in enumerate(answers):
    for j, block in enumerate(np.asarray(block_ids[i]).tolist()):
      if block < 0 or not patterns:
        continue
      matches = _matched_tokens(blocks, block, patterns)
      widths = matches[:, 1] - matches[:, 0]
      fits = (widths > 0) & (widths <= layout.max_span_width)
      fits &= matches[:, 1] <= counts[i, j]
      starts = matches[fits, 0] + rows['reader_starts'][i, j]
      correct[i, j, widths[fits] - 1, starts] = True
  return correct


def _no_spans(layout: ReaderLayout, shape: tuple[int, ...]) -> np.ndarray:
  return np.zeros((*shape[:2], layout.max_span_width, shape[2]), bool)


def _matched_tokens(
  blocks: blocks_lib.BlockStore, block: int, patterns: Sequence[str]
) -> np.ndarray:
  """First and past-last token of each match in a block's text: [n, 2]."""
  [text] = blocks.texts([block])
  decomposed = answers_lib.decompose(text)
  spans = []
  for pattern in map(answers_lib.decompose, patterns):
    compiled = answers_lib.compile_regex(pattern)
    if compiled is not None:
      spans += [match.span() for match in compiled.find_all(decomposed)]
  matches = np.asarray([(a, b) for a, b in spans if a < b], np.int64)
  if not len(matches):
    return np.zeros((0, 2), np.int64)
  # Byte range in the block's text of each decomposed character.
  parts = [len(answers_lib.decompose(character)) for character in text]
  sizes = [len(character.encode()) for character in text]
  limits = np.repeat(np.cumsum(sizes), parts)
  starts = limits - np.repeat(sizes, parts)
  ids = np.asarray([block])
  [(first, limit)] = blocks.token_spans[ids].tolist()
  document, base = int(blocks.documents(ids)[0]), blocks.byte_spans[ids][0, 0]
  offsets = blocks.tokens.token_bytes(document)[first:limit] - base
  return np.stack(
    [
      np.searchsorted(offsets[:, 1], starts[matches[:, 0]], 'right'),
      np.searchsorted(offsets[:, 0], limits[matches[:, 1] - 1], 'left'),
    ],
    axis=1,
  )
