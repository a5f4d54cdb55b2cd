# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Spans of rows back to characters, against aligning them by their letters."""

import dataclasses
import unicodedata

import numpy as np
import pytest

from realm_jax.data import reader_rows
from realm_jax.trained import answers
from retrieval.questions import question_files
from tests.retrieval.text import tiny_blocks

ODD = (
  'The \u00c9e\u0301\u0302 mill,  Paris\u2014CR\u00d6WN\n1066. Was It e\u0301.'
)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  rng = np.random.default_rng(0)
  given = [
    {'id': 'a', 'title': 'Mill', 'text': f'{ODD} The mill.  {ODD}'},
    *tiny_blocks.documents(5, rng),
  ]
  root = tmp_path_factory.mktemp('made')
  return tiny_blocks.make(root, rng, given=given, max_length=48)


def _letters(text):
  """Returns the letters that WordPiece keeps, with their places."""
  found = []
  for i, character in enumerate(text):
    for part in unicodedata.normalize('NFD', character.lower()):
      if not part.isspace() and unicodedata.category(part) != 'Mn':
        found.append((part, i))
  return found


def _aligned(text, pieces, first, last):
  """Characters of tokens first..last, found by counting their letters."""
  lengths = [len(piece.removeprefix('##')) for piece in pieces]
  letters = _letters(text)
  assert ''.join(x.removeprefix('##') for x in pieces) == ''.join(
    letter for letter, _ in letters
  )
  start = letters[sum(lengths[:first])][1]
  end = letters[sum(lengths[: last + 1]) - 1][1] + 1
  while end < len(text) and unicodedata.category(text[end]) == 'Mn':
    end += 1
  return start, end


def test_every_span_is_what_its_letters_are(made):
  vocabulary = (made.tokenizer_path / 'vocab.txt').read_text().split('\n')
  layout = reader_rows.ReaderLayout(
    row_length=64, cls_id=2, sep_id=3, max_span_width=4
  )
  n = made.blocks.num_blocks
  ids = np.arange(n)[:, None]
  questions = [np.full(i % 5, 7, np.int32) for i in range(n)]
  rows = reader_rows.reader_rows(layout, made.blocks, ids, questions)
  texts, checked = made.blocks.texts(range(n)), set()
  for i, text in enumerate(texts):
    start = int(rows['reader_starts'][i, 0])
    row = rows['reader_ids'][i, 0][rows['reader_block_mask'][i, 0]]
    # '\u2014' is no piece; it is one letter of the text all the same.
    pieces = [
      '\u2014' if x == made.tokenizer.unk_id else vocabulary[x] for x in row
    ]
    for first in range(len(pieces)):
      for last in range(first, min(first + 4, len(pieces))):
        span = start + first, last - first + 1, start
        answer = answers.Answer(made.blocks, i, 0, *span, 1.0, 0.25, False)
        found = answer.characters()
        assert found == (text, _aligned(text, pieces, first, last))
        checked.add(text[slice(*found[1])])
  assert {
    'mill,  Paris',
    '\u00c9e\u0301\u0302',
    'CR\u00d6WN',
    'e\u0301',
  } <= checked


def test_an_answer_shows_its_text(made):
  shown = repr(answers.Answer(made.blocks, 0, 0, 7, 1, 7, 2.0, 0.25, True))
  assert shown == "Answer(text='The', score=2, share=0.25, title='Mill')"


@pytest.mark.parametrize(
  ('text', 'part', 'word'),
  [
    ('Tom Collins wrote it', 'llins', 'Collins'),
    ('Tom Collins wrote it', 'm Co', 'Tom Collins'),
    ('Tom Collins wrote it', 'Collins', 'Collins'),
    ('the U.S. and', 'S', 'S'),
    ('cafe\u0301s there', 'af', 'cafe\u0301s'),
    ('in 1066.', '06', '1066'),
    ('\u6771\u4eac\u90fd\u306f', '\u4eac', '\u4eac'),
  ],
)
def test_a_span_is_widened_to_whole_words(text, part, word):
  begin = text.index(part)
  found = answers.whole_words(text, (begin, begin + len(part)))
  assert text[slice(*found)] == word


def test_spans_inside_of_words_are_shown_whole_and_once(made):
  layout = reader_rows.ReaderLayout(
    row_length=64, cls_id=2, sep_id=3, max_span_width=4
  )
  rows = reader_rows.reader_rows(
    layout, made.blocks, np.array([[0]]), [np.zeros(0, np.int32)]
  )
  vocabulary = (made.tokenizer_path / 'vocab.txt').read_text().split('\n')
  ids, inside = rows['reader_ids'][0, 0], rows['reader_block_mask'][0, 0]
  at = [
    i for i in np.flatnonzero(inside) if vocabulary[ids[i]].startswith('##')
  ]
  start = int(rows['reader_starts'][0, 0])
  places = [(int(at[0]), 1), (int(at[0]) - 1, 1), (int(at[-1]) + 1, 1)]
  made_of = [
    answers.Answer(made.blocks, 0, 0, *span, start, 1.0, 0.25, False)
    for span in places
  ]
  raw = made_of[0].characters()
  text, (low, high) = made_of[0].highlight
  assert high - low > raw[1][1] - raw[1][0]
  assert made_of[0].text == made_of[1].text
  asked = question_files.Question('0', 'Who?', ())
  found = answers.Answered(asked, (*made_of, made_of[0]), np.zeros(1), False)
  # One that overlaps and one that is equal give it their shares.
  first = dataclasses.replace(made_of[0], share=0.75)
  assert found.best() == [first, made_of[2]]
  assert found.best(1) == [first] and found.confidence == 0.75
  assert len(found.record(5)['runner_ups']) == 1
  lines = repr(found).splitlines()
  assert lines[0] == 'Who?' and len(lines) == 4
  assert made_of[0].text in lines[2] and '0.750' in lines[2]
  for threshold, silent in ((0.75, False), (0.76, True)):
    other = dataclasses.replace(found, threshold=threshold, answerable=0.24)
    assert other.silent == silent
    assert other.text == ('' if silent else found.text)
    assert len(other.record()['runner_ups']) == 1 + silent
    for shown in (repr(other), other._repr_html_()):
      assert (answers.SILENT in shown) == silent and made_of[0].source in shown
  assert '(no answer)' in repr(answers.Answers([other]))
