# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences in other languages, and of documents beyond ASCII."""

import numpy as np
import pytest

from retrieval.text import packing
from tests.retrieval.text import tiny_blocks


@pytest.mark.parametrize(
  ('language', 'parts'),
  [
    ('en', ['Am 3.', 'Oktober kam er.', 'Gut.']),
    ('de', ['Am 3. Oktober kam er.', 'Gut.']),
  ],
)
def test_languages_end_sentences_by_their_own_rules(language, parts):
  text = 'Am 3. Oktober kam er. Gut.'
  found = packing.split_sentences(text, language)
  assert [text[low:high] for low, high in found] == parts


def test_other_scripts_have_their_own_stops():
  text = 'これは文です。次の文です。 यह वाक्य है।'
  found = [text[low:high] for low, high in packing.split_sentences(text, 'ja')]
  assert found[:2] == ['これは文です。', '次の文です。']
  assert packing.split_sentences('') == packing.split_sentences(' \n\t\n') == []


def test_blocks_beyond_ascii_are_exact(tmp_path):
  parts = ['Ünder Röme 🐝 was mill.', 'Crown stööd in 1066!', 'París?', 'é x']
  text = ' \r\n'.join(f'  {part}' for part in parts)
  rows = [{'id': 'ä', 'title': 'Zoë', 'text': text}]
  made = tiny_blocks.make(tmp_path, None, given=rows, max_length=24)
  blocks = made.blocks
  assert blocks.num_sentences == 4 and blocks.num_blocks > 1
  raw = made.tokens.text_bytes(0)
  found = [raw[a:b].decode() for a, b in blocks.sentence_bytes(np.arange(4))]
  assert found == parts
  texts = blocks.texts(range(blocks.num_blocks))
  assert ''.join(''.join(texts).split()) == ''.join(text.split())
  assert all(x == x.strip() and x in text for x in texts)
  assert blocks.titles([0]) == ['Zoë']
