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
  (of the block) are tokens of the reader's row.
  """
  ids = np.asarray([block_id])
  at = blocks.token_spans[ids][0, 0] + start - reader_start
  document, [text] = int(blocks.documents(ids)[0]), blocks.texts(ids)
  offsets = blocks.tokens.token_bytes(document)[at : at + width]
  offsets = offsets - blocks.byte_spans[ids][0, 0]
  begin, end = (
    len(text.encode()[:x].decode()) for x in (offsets[0, 0], offsets[-1, 1])
  )
  # Marks that the tokenizer drops are of no token.
  while end < len(text) and unicodedata.combining(text[end]):
    end += 1
  return text, (begin, end)
