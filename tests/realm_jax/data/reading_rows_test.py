# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions with given passages: their rows are concatenations, their spans answers."""

import json

import numpy as np
import pytest

from realm_jax.data import reader_rows, reading_rows
from retrieval import tokenization
from tests.realm_jax.data import tiny_qa
from tests.retrieval.text import tiny_blocks

L, W, C, R = 40, 4, 6, 2
# Two blocks of 16 tokens; 1066 is in both.
_LONG = 'The mill stood in Rome in 1066. The crown was in Paris. ' * 2
_ROWS = (
  {
    'question': 'When was the mill?',
    'answers': ['1066'],
    'answer_start': [_LONG.rindex('1066')],
    'context': _LONG,
    'title': 'Mill',
  },
  {
    'question': 'Where was the crown?',
    'answers': ['Paris'],
    'ctxs': [
      {'title': 'Rome', 'text': 'The crown stood in Rome.'},
      {'title': 'Paris', 'text': 'Paris was the crown river. Paris stood.'},
    ],
  },
  {'question': 'Who stood?', 'answers': [], 'context': 'The river stood.'},
  {'question': 'Who was in 1999', 'answers': ['crown'], 'context': 'The mill.'},
)
_MORE = {
  'question': 'When was the mill?',
  'answers': ['1066'],
  'ctxs': [{'text': 'The river was in 1999.'}, {'text': ''}],
}


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  root = tmp_path_factory.mktemp('reading')
  path = tiny_blocks.write_vocabulary(root / 'tokenizer')
  files = root / 'a.jsonl', root / 'b.jsonl'
  for file, rows in zip(files, (_ROWS, [_MORE]), strict=True):
    file.write_text(''.join(json.dumps(x) + '\n' for x in rows))
  asked = reading_rows.read(files)
  blocks = reading_rows.cut(asked, root / 'data', path, max_length=16)
  return asked, blocks, tokenization.load_tokenizer(path)


def _rows(made, **fields):
  asked, blocks, tokenizer = made
  lengths = {'row_length': L, 'question_length': 12, 'title_length': 2}
  layout = tiny_qa.layout(tokenizer, max_span_width=W, **lengths)
  config = reader_rows.Reading(blocks=R, **fields)
  return reading_rows.ReadingRows(
    asked, blocks, tokenizer, layout, most=C, config=config
  )


def _texts(tokenizer, batch, i, j):
  """Row and gold spans as words."""
  ids = batch['reader_ids'][i, j]
  words = tokenizer.decode(ids[batch['reader_mask'][i, j]].tolist())
  spans = np.argwhere(batch['reader_correct'][i, j]).tolist()
  return words, [
    (start, tokenizer.decode(ids[start : start + width + 1].tolist()))
    for width, start in spans
  ]


def test_records_of_a_question_are_joined_and_those_without_an_answer_left(
  made,
):
  asked, blocks, _ = made
  assert [len(x.contexts) for x in asked] == [3, 2, 1, 1]
  assert blocks.num_blocks > 6  # the long passage is cut
  assert _rows(made).usable.tolist() == [True, True, True, False]


def test_first_blocks_are_read_with_their_answers_marked(made):
  asked, blocks, tokenizer = made
  batch = _rows(made).first(np.arange(3), np.random.default_rng(0))
  # Only the second of both places was marked, and its block comes first.
  words, [(start, gold)] = _texts(tokenizer, batch, 0, 0)
  assert gold == '1066' and words.startswith('when was the mill')
  assert batch['reader_ids'][0, 0, 0] == tokenizer.cls_id
  assert batch['reader_block_mask'][0, 0, start]
  assert not batch['reader_correct'][0, 1].any()
  assert 'mill' in words[len('when was the mill') :]  # title and body
  # Unmarked answers are right wherever they are; not in titles or questions.
  assert not batch['reader_correct'][1, 0].any()
  _, spans = _texts(tokenizer, batch, 1, 1)
  assert [x for _, x in spans] == ['paris', 'paris']
  # A question without answers, and a block that does not exist.
  assert batch['beam_valid'][2].tolist() == [True, False]
  assert not batch['reader_correct'][2].any()
  assert batch['beam_has_answer'].tolist() == [
    [True, False],
    [False, True],
    [False, False],
  ]
  assert batch['row_valid'].all() and not batch['beam_scores'].any()
  assert batch['beam_scores'].shape == batch['reader_valid'].shape == (3, R)


def _draw(rows, count=200):
  rng = np.random.default_rng(1)
  return rows.draw(np.repeat([0, 1], count), rng)


def test_one_block_with_an_answer_is_drawn_or_none(made):
  batch = _draw(_rows(made, no_answer=0.0, no_mark=0.0))
  assert (batch['beam_has_answer'].sum(1) == 1).all()
  assert batch['beam_valid'].all()
  others = {x.tobytes() for x in batch['reader_ids'].reshape(-1, L)}
  assert len(others) == 3 + 2  # every block of both questions
  batch = _draw(_rows(made, no_answer=0.5))
  share = batch['beam_has_answer'].any(1).mean()
  assert 0.4 < share < 0.6
  # Of the second question one block is left, in place of two.
  assert 0.4 < batch['beam_valid'][200:].all(1).mean() < 0.6


def test_some_questions_lose_their_mark(made):
  batch = _draw(_rows(made, no_mark=0.5))
  mark = made[-1].encode('?').ids[0]
  asked = ~batch['reader_types'].astype(bool) & batch['reader_mask']
  there = ((batch['reader_ids'] == mark) & asked).any(-1)
  assert (there[:, 0] == there[:, 1])[batch['beam_valid'].all(1)].all()
  assert 0.4 < there[:, 0].mean() < 0.6


def test_what_is_drawn_decides_the_fingerprint(made):
  prints = {_rows(made, no_answer=x).fingerprint for x in (0.1, 0.1, 0.2)}
  assert len(prints) == 2
