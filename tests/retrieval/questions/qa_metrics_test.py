# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rules of a right answer, where they differ from each other."""

import pytest

from retrieval.questions import qa_metrics

_COMPOSED, _DECOMPOSED = 'Caf\u00e9', 'Cafe\u0301'


@pytest.mark.parametrize(
  ('text', 'wanted'),
  [
    ('The  Beatles!', 'beatles'),
    ('an apple a day', 'apple day'),
    ("Hitchhiker's-Guide", 'hitchhikersguide'),
    ('the.end', 'theend'),
    ('Theatre', 'theatre'),
    ('\u2019t Hooft', '\u2019t hooft'),
    ('The', ''),
  ],
)
def test_normalize_answer(text, wanted):
  assert qa_metrics.normalize_answer(text) == wanted
  assert qa_metrics.normalize_answer(text, nfd=False) == wanted


def test_nfd_makes_one_of_two_spellings_and_keeps_the_mark():
  assert qa_metrics.exact_match(_COMPOSED, [_DECOMPOSED])
  assert not qa_metrics.exact_match(_COMPOSED, [_DECOMPOSED], nfd=False)
  assert not qa_metrics.exact_match(_COMPOSED, ['cafe'])


def test_articles_stand_before_marks():
  # A combining mark is no letter to a regular expression: the 'a' before it is a
  # word of its own, as in the official script.
  assert qa_metrics.normalize_answer('\u00e0') == '\u0300'
  assert qa_metrics.normalize_answer('\u00e0', nfd=False) == '\u00e0'


def test_contains_goes_by_whole_words():
  assert qa_metrics.contains('the 16th, Abraham Lincoln', ['Taft', 'A Lincoln'])
  assert not qa_metrics.contains('Lincolnshire', ['Lincoln'])
  assert not qa_metrics.contains('Lincoln', ['Abraham Lincoln', 'the'])
  assert qa_metrics.contains('The', ['the'])
  assert qa_metrics.regex_match('about 42 km', [r'4\d'], anywhere=True)
  assert not qa_metrics.regex_match('in 1942', [r'4\d'], anywhere=True)


def test_f1():
  assert qa_metrics.f1('Rome, Italy', ['Paris', 'the Rome']) == pytest.approx(
    2 / 3
  )
  # A token counts as often as it stands in both.
  assert qa_metrics.f1('to to be', ['to be be']) == pytest.approx(2 / 3)
  assert qa_metrics.f1('Rome', ['Paris']) == 0
  assert qa_metrics.f1('', ['Paris']) == 0
  assert qa_metrics.f1('the', ['a']) == 1
  assert qa_metrics.f1(_COMPOSED, [_DECOMPOSED]) == 1


def test_regex_match_is_anchored_at_the_start_only():
  assert qa_metrics.regex_match('8,850 metres', [r'8,8\d0'])
  assert not qa_metrics.regex_match('about 8,850', [r'8,8\d0'])
  assert qa_metrics.regex_match('NEW  york', ['x', r'new\s+York'])
  # Nothing is normalised, neither pattern nor prediction.
  assert not qa_metrics.regex_match('the Nile', ['Nile'])
  assert not qa_metrics.regex_match(_COMPOSED, [_DECOMPOSED])
  # MULTILINE: '$' stands before a line's end.
  assert qa_metrics.regex_match('Nile\nEgypt', ['nile$'])
