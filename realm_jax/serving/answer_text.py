# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Spans of the reader's rows back to the characters that they stand for.

WordPiece loses case, accents and blanks. SQuAD's code guesses them by aligning the
tokens with the text again; the token store knows the bytes of each token.
"""

from collections.abc import Sequence
import unicodedata

import numpy as np

from retrieval.text import blocks as blocks_lib


def highlight(
  blocks: blocks_lib.BlockStore,
  block_id: int,
  start: int,
  width: int,
  reader_start: int,
) -> tuple[str, tuple[int, int]]:
  """A block with the place of an answer in it.

  Args:
    blocks: where they lie.
    block_id: the block that was read; -1 for none.
    start: first token of the answer, in the reader's row.
    width: tokens of the answer.
    reader_start: first token of the block, in the reader's row.

  Returns:
    The block's exact text, and the first and past-last character of the answer.
    Nothing is added, but for the marks of its last character. '' and (0, 0)
    without a block.

  Raises:
    ValueError: for a span that is not of the block's tokens.
  """
  if block_id < 0:
    return '', (0, 0)
  ids = np.asarray([block_id])
  [(first, limit)] = blocks.token_spans(ids).tolist()
  [(low, high)] = blocks.byte_spans(ids).tolist()
  at = first + start - reader_start
  if width < 1 or at < first or at + width > limit:
    raise ValueError(
      f'Block {block_id}: a span of {width} token(s) at {start - reader_start}, '
      f'expected one within its {limit - first}.'
    )
  document = int(blocks.documents(ids)[0])
  offsets = blocks.tokens.token_bytes(document)[at : at + width]
  raw = blocks.tokens.text_bytes(document)[low:high]
  begin, end = (int(offsets[i, i]) - low for i in (0, -1))
  while begin and _inside(raw, begin):  # a token of single bytes
    begin -= 1
  while end < len(raw) and _inside(raw, end):
    end += 1
  text = raw.decode()
  begin, end = len(raw[:begin].decode()), len(raw[:end].decode())
  # Marks that the tokenizer drops are of no token.
  while end < len(text) and unicodedata.combining(text[end]):
    end += 1
  return text, (begin, end)


def _inside(raw: bytes, at: int) -> bool:
  """Whether a character goes on at this byte."""
  return raw[at] & 0xC0 == 0x80


def answer_texts(
  blocks: blocks_lib.BlockStore,
  block_ids: np.ndarray,
  starts: np.ndarray,
  widths: np.ndarray,
  reader_starts: np.ndarray,
) -> list[str]:
  """The exact text of answers.

  Args:
    blocks: where they lie.
    block_ids: [n] blocks that were read, -1 for none.
    starts: [n] first token of each answer, in the reader's row.
    widths: [n] tokens of each answer.
    reader_starts: [n] first token of each block, in the reader's row.

  Returns:
    [n] texts, '' without a block.

  Raises:
    ValueError: see `highlight`.
  """
  return [
    _cut(*highlight(blocks, *row))
    for row in zip(
      *(_list(x) for x in (block_ids, starts, widths, reader_starts)),
      strict=True,
    )
  ]


def _list(values: np.ndarray | Sequence[int]) -> list[int]:
  return np.asarray(values, np.int64).tolist()


def _cut(text: str, span: tuple[int, int]) -> str:
  return text[slice(*span)]
