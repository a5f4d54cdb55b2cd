# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers in whole beams: the same as block by block."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from retrieval.questions import (
  answer_search,
  answers as answers_lib,
  question_files,
)
from tests.retrieval.questions import answers_test
from tests.retrieval.text import tiny_blocks

ODD = (
  'Ab1_. \n\u200b\u00a0\u3000\u00e9e\u0301i\u0130\u0131\u017f\u00df\u01c5s'
  '\u03a3\u03c3\u03c2\u0391\u0345\u212ak\u1e9b\u0939\u093f\uac00\u65e5'
  '\U0001d400\U0001f680\ufdd0\ufb01'
)
PATTERNS = (
  'paris|rome',
  r'19\d\d',
  r'^the',
  r'mill\.?$',
  'r[io]ver',
  r'c?rown',
  '(in)?was',
  'x{0}mill',
  r'\bS',
  '[^a]k',
  '(?i:i)s',
  r'i\u0301',
  '(',
  '.',
  'mill( +river)+',
  'no (such|one)|zzz',
  r'cro+wn',
  '\u00e9',
  r'[]s]+1',
  '(rome|.)?',
)


def _made(root, texts):
  documents = [
    {'id': f'd{i}', 'title': 'Mill', 'text': text}
    for i, text in enumerate(texts)
  ]
  return tiny_blocks.make(
    root,
    np.random.default_rng(0),
    given=documents,
    whole_documents=True,
    max_length=64,
  )


@pytest.fixture(scope='module')
def odd(tmp_path_factory):
  """Blocks of odd characters over several shards, and what they say."""
  rng = np.random.default_rng(0)
  words = [*tiny_blocks.WORDS, 'the', 'CROWN', 'kin', 'Is', 'cr\u00f6wn']
  texts = []
  for _ in range(60):
    row = [str(x) for x in rng.choice(words, 4)]
    row += [''.join(rng.choice([*ODD], 5)) for _ in range(3)]
    text = ' '.join(str(x) for x in rng.permutation(row)) + '.'
    texts.append(f'The {text}')
  made = _made(tmp_path_factory.mktemp('odd'), texts)
  assert made.blocks.num_blocks == len(texts)
  assert made.tokens.store.array('tokens').num_shards > 3
  return made


def _find(made, rule, ids, answers):
  """Search for each row's answers as those of a question."""
  kind = 'regex' if rule == 'regex' else 'string'
  strings = 'substring' if rule == 'regex' else rule
  search = answer_search.QuestionSearch(made.blocks, strings)
  questions = [
    question_files.Question(f'{i}', 'Who?', tuple(x), kind)
    for i, x in enumerate(answers)
  ]
  return search.find(ids, questions)


def _one_by_one(made, rule, ids, answers):
  """Test block by block."""
  contained = np.zeros(ids.shape, bool)
  for row, texts, hits in zip(ids, answers, contained, strict=True):
    there = row >= 0
    blocks = made.blocks.texts(row[there])
    hits[there] = answers_test.has_answer(blocks, texts, rule)
  return contained


@pytest.mark.parametrize('rule', answers_lib.RULES)
def test_beams_equal_single_blocks(odd, rule):
  texts = odd.blocks.texts(range(60))

  @hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
  @hypothesis.given(st.data())
  def check(data):
    ids = data.draw(
      st.lists(
        st.lists(st.integers(-1, 59), min_size=9, max_size=9), max_size=2
      )
    )
    ids = np.asarray(ids, np.int32).reshape(-1, 9)
    if rule == 'regex':
      answer = st.sampled_from(PATTERNS) | st.text(ODD, min_size=1, max_size=2)
    else:
      text = data.draw(st.sampled_from(texts))
      at = data.draw(st.integers(0, len(text) - 1))
      cut = text[at : at + data.draw(st.integers(1, 9))]
      cuts = st.sampled_from((cut, cut.lower(), cut.upper(), cut + 'x'))
      answer = cuts | st.text(ODD, min_size=1, max_size=3)
      answer |= st.sampled_from(('Paris', 'mill river', '1', 'The'))
    answers = [data.draw(st.lists(answer, max_size=3)) for _ in ids]
    try:
      expected = _one_by_one(odd, rule, ids, answers)
    except ValueError:
      hypothesis.assume(False)
    contained = _find(odd, rule, ids, answers)
    assert contained.dtype == bool
    np.testing.assert_array_equal(contained, expected, str(answers))
    hypothesis.target(float(expected.sum()))

  check()


def test_answers_that_every_text_holds_match_nothing(odd, caplog):
  ids = np.asarray([[0, 1, 2, 3]])
  [text] = odd.blocks.texts([0])
  some, none, pattern = (
    question_files.Question(*row)
    for row in (
      ('a', 'Some?', ('\u200b', text)),
      ('b', 'None?', ('\u200b', '\u200b ')),
      ('c', 'Pattern?', ('',), 'regex'),
    )
  )
  search = answer_search.QuestionSearch(odd.blocks, 'dpr')
  for _ in range(2):
    hits = search.find(np.repeat(ids, 3, axis=0), [some, none, pattern])
  np.testing.assert_array_equal(
    hits[:1], _one_by_one(odd, 'dpr', ids, [[text]])
  )
  assert hits[0].any() and not hits[1:].any()
  lines = [x for x in caplog.messages if 'nothing to look for' in x]
  assert len(lines) == 3 and "Question a, 'Some?'" in lines[0]
