# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The matching rules: where they differ, and against literal copies of them."""

import re
import sys
import unicodedata

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import regex

from retrieval.questions import answers

ODD = (
  'aAbB1_.-\u2019 \n\t\0\u200b\u00a0\u3000'  # blanks, some of them unseen
  '\u00e9\u0301e\u0130i\u0131\u00df\u0152\u01c5'  # letters with two forms
  '\u03a3\u03c3\u03c2\u0391\u0345'  # sigma, and a mark that is a letter too
  '\u2460\u24b6\u2163\u0663\u00bd\u0939\u093f\uac00\u65e5\U0001d400\U0001f680'
  '\ue000\ufdd0\U000e0001\ufb01'
)


def has_answer(texts, wanted, rule):
  """Whether each text contains one of a question's answers."""
  rule = answers.make_rule(rule)
  test = rule.compile(wanted)
  return np.array([test(text) for text in rule.prepare(texts)], bool)


def literal_tokens(text):
  """`[\\p{L}\\p{N}\\p{M}]+|[^\\p{Z}\\p{C}]`, character by character."""
  tokens, run = [], ''
  for character in text + ' ':
    kind = unicodedata.category(character)[0]
    if kind in 'LNM':
      run += character
      continue
    tokens += [run] if run else []
    tokens += [] if kind in 'ZC' else [character]
    run = ''
  return tokens


def literal_dpr(wanted, text):
  """DPR's has_answer for strings."""
  text = literal_tokens(unicodedata.normalize('NFD', text))
  text = [token.lower() for token in text]
  for answer in wanted:
    answer = literal_tokens(unicodedata.normalize('NFD', answer))
    answer = [token.lower() for token in answer]
    for i in range(len(text) - len(answer) + 1):
      if answer == text[i : i + len(answer)]:
        return True
  return False


# text, answer, then what substring, dpr and regex say.
CASES = (
  ('Paris is the capital', 'Paris', True, True, True),
  ('Paris is the capital', 'paris', False, True, True),
  ('the 1961 capital', '196', True, False, True),
  ('the 1961 capital', '1961', True, True, True),
  ('Qu\u00e9bec is the capital', 'Quebec', False, False, False),
  ('Que\u0301bec', 'Qu\u00e9bec', False, True, True),
  ('Que\u0301bec', 'Que', True, False, True),
  ('the U.S. capital', 'U. S.', False, True, False),
  ('the U.S. capital', 'US', False, False, False),
  ('the U.S. capital', 'U.S', True, True, True),
  ('the\ncapital', 'the capital', False, True, False),
  ('the\u200b capital', 'the capital', False, True, False),
  ('capital_of', 'capital', True, True, True),
  ('capital', 'cap[aeiou]tal|x', False, False, True),
  ('is it\nParis', '^paris$', False, False, True),
)


@pytest.mark.parametrize('case', CASES, ids=lambda c: f'{c[1]!r} in {c[0]!r}')
def test_where_the_rules_differ(case):
  text, answer, *wanted = case
  found = [
    bool(has_answer([text], [answer], rule)[0]) for rule in answers.RULES
  ]
  assert dict(zip(answers.RULES, found, strict=True)) == dict(
    zip(answers.RULES, wanted, strict=True)
  )


@st.composite
def text_and_answers(draw):
  """A text of odd characters, and answers of which some are parts of it."""
  text = draw(st.text(ODD, max_size=30))
  low, high = sorted(draw(st.integers(0, len(text))) for _ in range(2))
  part = text[low:high]
  change = draw(st.sampled_from((str, str.lower, str.upper, str.swapcase)))
  other = draw(st.text(ODD, max_size=4))
  wanted = [change(part), other, part.replace(' ', '\n')]
  return text, [a for a in wanted if literal_tokens(a)]


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(text_and_answers())
@hypothesis.example(('\u0391\u03a3.\u0391', ['\u03b1\u03c2.']))
@hypothesis.example(('ba a a', ['a a']))
@hypothesis.example(('a b a c', ['a c']))
def test_dpr_equals_its_literal_form(case):
  text, wanted = case
  found = has_answer([text], wanted, 'dpr')
  assert found.tolist() == [literal_dpr(wanted, text)]


def test_lower_case_keeps_what_a_token_is():
  # What lets the dpr rule lower a whole text before it looks for tokens.
  for number in range(sys.maxunicode + 1):
    character = chr(number)
    lower = character.lower()
    if lower != character:
      kinds = [bool(regex.match(answers._WORD, c)) for c in lower]
      assert {*kinds} == {bool(regex.match(answers._WORD, character))}, number


def test_regex_decomposes_text_and_pattern():
  # As DPR does: a class of composed letters comes apart, and so do escapes.
  for pattern, text, wanted in (
    ('Qu[e\u00e9]bec', 'Quebec', True),
    ('Qu[e\u00e9]bec', 'Qu\u00e9bec', False),
    ('Qu(e|\u00e9)bec', 'Qu\u00e9bec', True),
    ('K\\\u00f6ln|Bonn', 'Bonn', False),
    ('a(', 'a(', False),
    ('b.*n', 'Bo\nnn', False),
  ):
    found = has_answer([text], [pattern], 'regex')
    assert found.tolist() == [wanted], (pattern, text)


def test_invalid_regex_leaves_the_others(caplog):
  answers.compile_regex.cache_clear()
  with caplog.at_level('WARNING', logger='absl'):
    for _ in range(2):
      assert has_answer(['ab'], ['a(', 'B'], 'regex').all()
  assert len(re.findall(r"'a\(' matches nothing", caplog.text)) == 1


def test_a_search_that_backtracks_for_ever_is_refused(monkeypatch):
  monkeypatch.setattr(answers, '_SEARCH_SEC', 0.01)
  pattern = answers.compile_regex('(a|aa)+$')
  for find in (pattern.search, pattern.match, pattern.find_all):
    assert find('AAA')
    with pytest.raises(ValueError, match=r"'\(a\|aa.*backtracks less"):
      find('a' * 300 + '?')


def test_python_defines_the_syntax_of_patterns():
  # Package regex alone would take all of these.
  for pattern in (r'\p{Lu}', '(?R)?', r'x(*PRUNE)', '(?|a|b)'):
    assert answers.compile_regex(pattern) is None
  for pattern, text in (('a{e}', 'zzz'), ('[[:digit:]]', '7'), (r'\\{2}', '2')):
    assert not answers.compile_regex(pattern).search(text)
    assert not re.search(pattern, text)
  assert answers.compile_regex('a{2}b{e}').search('aab{e}')


@pytest.mark.parametrize(
  ('rule', 'answer'), [('substring', ''), ('dpr', ' \u200b'), ('regex', '')]
)
def test_refuses_answers_that_all_texts_hold(rule, answer):
  with pytest.raises(ValueError, match='nothing to look for'):
    has_answer(['text'], ['a', answer], rule)


def test_an_unknown_rule_is_refused():
  with pytest.raises(ValueError, match='rule'):
    answers.make_rule('wordpiece')
