# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Characters of a span of a reader's row."""

import unicodedata

import numpy as np
import regex

from retrieval.text import blocks as blocks_lib

# Letters of words; scripts without blanks between words have none.
_LETTER = regex.compile(
  r'[[\p{L}\p{N}\p{M}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}'
  r'\p{Khmer}\p{Myanmar}]]',
  regex.VERSION1,
)


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
