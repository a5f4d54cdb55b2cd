# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence boundaries, by Wikimedia's sentencex."""

import sentencex

VERSION = 1  # of the rules of `split`; part of the fingerprint of blocks


def split(text: str, language: str = 'en') -> list[tuple[int, int]]:
  """Find the sentences of a text; line breaks end sentences.

  Returns:
    First and past-last character of each sentence, in order, without the blanks
    around it.
  """
  spans = []
  for found in sentencex.get_sentence_boundaries(language, text):
    start, limit = found['start_index'], found['end_index']
    for low, high in _lines(text, start, limit):
      part = text[low:high]
      blank = len(part) - len(part.lstrip())
      stripped = part.strip()
      if stripped:
        spans.append((low + blank, low + blank + len(stripped)))
  return spans


def _lines(text: str, start: int, limit: int):
  """Cuts [start, limit) at line breaks."""
  while (at := text.find('\n', start, limit)) >= 0:
    yield start, at
    start = at + 1
  yield start, limit
