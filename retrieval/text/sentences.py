# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence boundaries, by Wikimedia's sentencex."""

import re

import sentencex

VERSION = 1  # of the rules of `split`; part of the fingerprint of blocks
_LINE = re.compile(r'\S(?:[^\n]*\S)?')  # without the blanks around it


def split(text: str, language: str = 'en') -> list[tuple[int, int]]:
  """Find the sentences of a text; line breaks end sentences.

  Returns:
    First and past-last character of each sentence, in order, without the blanks
    around it.
  """
  return [
    line.span()
    for found in sentencex.get_sentence_boundaries(language, text)
    for line in _LINE.finditer(text, found['start_index'], found['end_index'])
  ]
