# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Text of tokens that come one at a time: here the bytes of UTF-8."""

import pytest

from retro_jax.decoding import growing_text


def _detokenize(tokens):
  return bytes(tokens).decode(errors='replace')


def _grow(text, stop_strings=()):
  growing = growing_text.GrowingText(_detokenize, stop_strings)
  shown = []
  for token in text.encode():
    shown.append(growing.add(token))
    if growing.stopped:
      break
  shown.append(growing.finish())
  assert ''.join(shown) == growing.text
  return growing, shown


def test_characters_are_shown_whole():
  growing, shown = _grow('a日b\U0001f600')
  assert growing.text == 'a日b\U0001f600' and not growing.stopped
  assert shown == ['a', '', '', '日', 'b', '', '', '', '\U0001f600', '']


@pytest.mark.parametrize(
  ('text', 'stop_strings', 'want'),
  [
    ('one. two', ('.',), 'one'),
    ('one. two', ('two', '. t'), 'one'),
    ('aab', ('ab',), 'a'),
    ('abab!', ('abb', 'aba!'), 'abab!'),
    ('x\n\ny', ('\n\n',), 'x'),
    ('xx日', ('日',), 'xx'),
    ('stop', ('stop',), ''),
    ('sto', ('stop',), 'sto'),
  ],
)
def test_text_ends_before_the_first_stop_string(text, stop_strings, want):
  """Shown piece by piece, and never a piece of the stop string."""
  growing, shown = _grow(text, stop_strings)
  assert growing.text == want
  assert growing.stopped == any(stop in text for stop in stop_strings)
  for i in range(len(shown)):
    assert want.startswith(''.join(shown[:i]))


def test_what_is_no_character_is_not_waited_for():
  growing = growing_text.GrowingText(_detokenize)
  shown = [growing.add(token) for token in (0xE6, 0xE6, 0xE6, 0xE6, 65)]
  assert shown == ['', '', '', '\ufffd' * 4, 'A']
  growing.add(0xE6)
  assert growing.finish() == '\ufffd'
