# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Packaged trivia lists are read as data."""

import sys

import pytest

from retrieval.questions import question_files, red_trivia

Q = question_files.Question

_CAPITALS = """\
AUTHOR: someone
Capital of Peru?:
- Lima
- Ciudad de los Reyes
- LIMA
"\\"Oslo\\" is whose capital?":
- Norway
"""
_ODD = """\
How high is it?:
- 010
- 12:30
- 3.10
- 2015-01-02
- null
Is it?:
- yes
Is it not?:
- False
Whose flag is https://x.y/z.png?:
- Peru
Who has none?:
- ''
- ' '
Last?:
- End
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
  """A package like Red-Trivia, which fails when it is imported."""
  lists = tmp_path / 'redbot' / 'ext' / 'trivia' / 'lists'
  lists.mkdir(parents=True)
  (tmp_path / 'redbot' / '__init__.py').write_text('1 / 0')
  (lists / 'capitals.yaml').write_text(_CAPITALS)
  (lists / 'odd.yaml').write_text(_ODD)
  monkeypatch.syspath_prepend(tmp_path)
  # Where the real one is installed, Python starts with its name space.
  monkeypatch.delitem(sys.modules, 'redbot', raising=False)
  return lists


_CAPITALS_READ = [
  Q('capitals:1', 'Capital of Peru?', ('Lima', 'Ciudad de los Reyes')),
  Q('capitals:2', '"Oslo" is whose capital?', ('Norway',)),
]
_NUMBERS = ('010', '12:30', '3.10', '2015-01-02', 'null')
_ODD_READ = [  # answers are as written, but for booleans
  Q('odd:1', 'How high is it?', _NUMBERS),
  Q('odd:2', 'Is it?', ('True', 'Yes', 'On')),
  Q('odd:3', 'Is it not?', ('False', 'No', 'Off')),
  Q('odd:6', 'Last?', ('End',)),
]


@pytest.mark.parametrize(
  ('lists', 'wanted'),
  [
    ('capitals', _CAPITALS_READ),
    (['capitals'], _CAPITALS_READ),
    (['odd', 'odd'], _ODD_READ),
    ((), _CAPITALS_READ + _ODD_READ),
  ],
)
def test_lists(package, lists, wanted):
  assert red_trivia.read(lists) == wanted
  assert 'redbot' not in sys.modules
