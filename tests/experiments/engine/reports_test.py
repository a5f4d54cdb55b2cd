# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Results as JSON files, tables and pictures."""

import json
import math

from experiments.engine import reports


def test_numbers_that_are_not_finite_become_null(tmp_path):
  content = {'a': [1.5, math.nan], 'b': (math.inf, {'c': -math.inf}), 'd': 'x'}
  path = reports.write_json(tmp_path / 'new' / 'found.json', content)
  assert json.loads(path.read_text()) == {
    'a': [1.5, None],
    'b': [None, {'c': None}],
    'd': 'x',
  }
  assert [x.name for x in path.parent.iterdir()] == ['found.json']


def test_shares_are_printed_by_question_set(capsys):
  share = {'mean': 0.25, 'low': 0.2, 'high': 0.3}
  reports.print_shares(
    [
      {'dataset': 'a:test', 'questions': 1200, 'f1': share},
      {'dataset': 'b:test', 'questions': 7, 'top_5': share},
    ]
  )
  lines = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert ['measure', 'a:test', 'b:test'] in lines
  assert ['questions', '1,200', '7'] in lines
  assert ['f1', '25.0', '±5.0', '-'] in lines
  assert ['top_5', '-', '25.0', '±5.0'] in lines
  none = {'mean': 1.0, 'low': math.nan, 'high': math.nan}  # of three questions
  assert (reports.share(none), reports.signed(none)) == ('100.0', '+100.0')
  assert reports.ends(none, '.4f') == '-'


def test_no_heading_is_cut(capsys):
  heads = ['baseline', *(f'less baseline number {i}' for i in range(9))]
  reports.print_table(heads, [['x', *9 * ['0.1234']]])
  lines = capsys.readouterr().out.splitlines()
  assert any(all(head in line for head in heads) for line in lines)


def test_tables_hold_long_values_and_titles_with_colons(capsys):
  path = 'folder/' * 30
  reports.print_table(('part', 'value'), [('path', path)], 'a:train: 7')
  printed = ''.join(capsys.readouterr().out.split())
  assert path in printed.replace('path', '', 1) and 'a:train:' in printed
