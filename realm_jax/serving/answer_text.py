# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Characters of the spans in the reader's rows, by the bytes of each token."""

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
  """Return a block's text, and the first and past-last character of an answer.

  The text is exact; marks of the last character belong to the answer. `start`
  and `reader_start` (of the block) are tokens of the reader's row; block_id =
  -1 gives '' and (0, 0).

  Raises:
    ValueError: for a span outside of the block's tokens.
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
  offsets = blocks.tokens.token_bytes(document)
  offsets = offsets[at : at + width]
  raw = blocks.tokens.text_bytes(document)[low:high]
  begin, end = int(offsets[0, 0]) - low, int(offsets[-1, 1]) - low
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
  """Whether a byte continues a character."""
  return raw[at] & 0xC0 == 0x80


def answer_texts(
  blocks: blocks_lib.BlockStore, *columns: np.ndarray | Sequence[int]
) -> list[str]:
  """Return the exact texts of answers; columns as of `highlight`, [n] each."""
  rows = zip(*(np.asarray(x).tolist() for x in columns), strict=True)
  found = (highlight(blocks, *row) for row in rows)
  return [text[slice(*span)] for text, span in found]
