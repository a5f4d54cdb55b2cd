# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers in whole beams: the same as block by block."""

import re
import sys

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from retrieval.questions import (
  answer_search,
  answers as answers_lib,
  questions as questions_lib,
)
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
  given = [
    {'id': f'd{i}', 'title': 'Mill', 'text': text}
    for i, text in enumerate(texts)
  ]
  return tiny_blocks.make(
    root,
    np.random.default_rng(0),
    given=given,
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


def _search(made, rule):
  return answer_search.AnswerSearch(made.blocks, rule, made.tokenizer)


def _want(made, rule, ids, answers):
  """Block by block."""

  def tokens(ids):
    rows, counts = made.blocks.gather(ids, 999)
    return [row[:n] for row, n in zip(rows, counts.tolist(), strict=True)]

  read = tokens if rule == 'wordpiece' else made.blocks.texts
  found = np.zeros(ids.shape, bool)
  for row, wanted, hits in zip(ids, answers, found, strict=True):
    there = row >= 0
    hits[there] = answers_lib.has_answer(
      read(row[there]), wanted, rule, made.tokenizer
    )
  return found


@pytest.mark.parametrize('rule', answers_lib.RULES)
def test_beams_equal_single_blocks(odd, rule):
  search = _search(odd, rule)
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
    wanted = [data.draw(st.lists(answer, max_size=3)) for _ in ids]
    try:
      want = _want(odd, rule, ids, wanted)
    except ValueError:
      hypothesis.assume(False)
    found = search.find(ids, wanted)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, want, str(wanted))
    hypothesis.target(float(want.sum()))

  check()


@pytest.mark.parametrize('rule', answers_lib.RULES)
def test_nothing_crosses_from_one_block_into_the_next(tmp_path, rule):
  made = _made(tmp_path, ['the mill', 'river stood', 'the mill river'])
  ids = np.asarray([[0, 1, 2, -1], [1, 0, 1, 0]])
  found = _search(made, rule).find(ids, [['mill river']] * 2)
  assert found.tolist() == [[False, False, True, False], [False] * 4]


def test_every_pattern_is_found_wherever_it_is(odd):
  search = _search(odd, 'regex')
  ids = np.arange(60)[None]
  for pattern in PATTERNS:
    want = _want(odd, 'regex', ids, [[pattern]])
    np.testing.assert_array_equal(search.find(ids, [[pattern]]), want, pattern)
  # 'needed' is None for some, so that both ways are taken.
  unknown = [
    p for p in PATTERNS if p != '(' and answer_search.literals(p) is None
  ]
  assert 2 < len(unknown) < len(PATTERNS) - 8


def test_what_a_pattern_needs():
  for pattern, want in {
    'a1|bc': ['a1', 'b'],
    r'New\s?York': ['Yor'],
    'Fla\\.+x': ['Fla.'],
    'ab{2}c{1,}': ['a'],
    '(?:a(b[)])c)d|[^]]ef': ['ab)c', 'e'],
    'New (York|Orleans)': ['New Yor', 'New Orlean'],
    '(a|b+c)d(e|fgh)': ['a', 'c'],
    r'(?=a)b\x41(?i:c)a{b': ['bAca{'],
    'e\u03011t': ['1'],
  }.items():
    assert answer_search.literals(pattern) == want, pattern
  for pattern in ('a|', '.*', '(?=a)', r'\S', 'ab?', '(a|bc?d|[^a])', '', ';'):
    assert answer_search.literals(pattern) is None, pattern


def test_letters_like_ascii_are_known():
  """Characters that match an ASCII letter without case, and do not fold to it."""
  characters = ''.join(map(chr, range(128, sys.maxunicode + 1)))
  found = re.findall('[a-z]', characters, re.IGNORECASE)
  assert len(found) > 3
  decomposed = [x for x in found if answers_lib.decompose(x) == x]
  folded = [answers_lib.fold(x) for x in decomposed]
  like = {x.encode() for x in folded if not x.isascii()}
  assert like == {*answer_search._LIKE_ASCII}


def test_answers_that_every_text_holds_match_nothing(odd, caplog):
  ids = np.asarray([[0, 1, 2, 3]])
  [wanted] = odd.blocks.texts([0])
  some, none, pattern = (
    questions_lib.Question(*row)
    for row in (
      ('a', 'Some?', ('\u200b', wanted)),
      ('b', 'None?', ('\u200b', '\u200b ')),
      ('c', 'Pattern?', ('',), 'regex'),
    )
  )
  search = answer_search.QuestionSearch(odd.blocks, 'dpr')
  for _ in range(2):
    found = search.find(np.repeat(ids, 3, axis=0), [some, none, pattern])
  np.testing.assert_array_equal(found[:1], _want(odd, 'dpr', ids, [[wanted]]))
  assert found[0].any() and not found[1:].any()
  lines = [x for x in caplog.messages if 'nothing to look for' in x]
  assert len(lines) == 4 and "Question a, 'Some?'" in lines[0]
