# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Verdicts by intervals and seeds, and the page made of results files."""

import dataclasses
import json

import pytest

from experiments.tables import claims, intervals


def _claim(expected='below', within=0.0, files=('a.json',)):
  return claims.Claim(
    system='RETRO',
    claim='it helps',
    source='the paper',
    paper='.82 against .98',
    expected=expected,
    within=within,
    evidence=[
      {'file': file, 'at': ['rows', 'name=on', 'minus', 'off'], 'what': file}
      for file in files
    ],
    measured='runs',
  )


def _difference(mean, error=0.1, seeds=5):
  of_seeds = (mean,) * seeds
  estimate = intervals.Estimate(mean, error, 1e6, of_seeds)
  return claims.Difference('x', False, estimate, True)


def _verdict(expected, *found):
  within = 0.5 if expected == 'near' else 0.0
  (row,) = claims.judge([(_claim(expected, within), found)])
  return row.verdict


@pytest.mark.parametrize(
  'expected, mean, want',
  [
    ('below', -1.0, claims.FOR),
    ('below', -0.1, claims.UNDECIDED),
    ('below', 1.0, claims.AGAINST),
    ('above', 1.0, claims.FOR),
    ('above', -1.0, claims.AGAINST),
    ('near', 0.1, claims.FOR),
    ('near', -0.4, claims.UNDECIDED),
    ('near', -0.6, claims.UNDECIDED),
    ('near', -0.9, claims.AGAINST),
    ('near', 0.9, claims.AGAINST),
  ],
)
def test_verdict_of_one_difference(expected, mean, want):
  assert _verdict(expected, _difference(mean)) == want


def test_all_differences_have_to_hold_and_one_refutes():
  below, above, none = map(_difference, (-1.0, 1.0, 0.0))
  assert _verdict('below', below, below) == claims.FOR
  assert _verdict('below', above, above) == claims.AGAINST
  assert _verdict('below', below, above) == claims.AGAINST
  assert _verdict('above', none, below) == claims.AGAINST
  assert _verdict('near', none, above) == claims.AGAINST
  assert _verdict('below', below, none) == claims.UNDECIDED
  assert _verdict('below') == claims.NOT_TESTED
  # The smallest of n p-values is multiplied by n.
  for others, expected in ((1, claims.AGAINST), (4, claims.UNDECIDED)):
    differences = [_difference(0.25)] + [none] * others
    assert _verdict('below', *differences) == expected


@pytest.mark.parametrize(
  'seeds, want',
  [(0, claims.FOR), (1, 'undecided'), (2, 'undecided'), (3, 'for')],
)
def test_few_seeds_decide_nothing(seeds, want):
  """Zero: nothing was trained."""
  assert _verdict('below', _difference(-1.0, seeds=seeds)) == want


def test_every_row_of_its_family_costs_a_claim():
  """2.5 standard errors have p = .0124 of two sides, five rows 5 p = .062."""
  one = _claim(), [_difference(-0.25)]
  control = dataclasses.replace(one[0], control=True), one[1]
  few = _claim(), [_difference(-0.25, seeds=2)]
  for others, expected in ((1, 'for'), (4, 'for'), (5, 'undecided')):
    rows = [*[one] * others, control, (_claim(), []), few, few]
    judged = claims.judge(rows)
    assert {x.verdict for x in judged[:others]} == {expected}
    assert judged[0].p == pytest.approx(0.01242 * others, rel=1e-2)
    assert judged[others].p == pytest.approx(0.01242, rel=1e-2)
    assert judged[-1].text() == 'undecided: 2 seeds'


def test_reads_the_named_difference(tmp_path):
  interval = {'mean': -1.0, 'low': -2.5, 'high': 0.5, 'of_seeds': [-1.0, -1.0]}
  rows = [{'name': 'off'}, {'name': 'on', 'minus': {'off': interval}}]
  (tmp_path / 'a.json').write_text(json.dumps({'rows': rows}))
  claim = _claim()
  (found,) = claims.read(claim, [tmp_path / 'none', tmp_path])
  assert found.text() == 'a.json -1.0000 [-2.5000, +0.5000], 2 seeds'
  assert claims.read(_claim(files=('a.json', 'b.json')), [tmp_path]) == []
  (tmp_path / 'a.json').write_text(json.dumps({'rows': rows[:1]}))
  assert claims.read(claim, [tmp_path]) == []  # the row was not measured
  rows = [{'name': 'on', 'minus': {'off': {'mean': 1}}}]
  (tmp_path / 'a.json').write_text(json.dumps({'rows': rows}))
  with pytest.raises(ValueError, match=r'a\.json'):
    claims.read(claim, [tmp_path])


def test_the_pages_name_every_claim_and_the_evidence_is_kept(
  tmp_path, monkeypatch, capsys
):
  runs, output = tmp_path / 'runs', tmp_path / 'docs'
  runs.mkdir()
  interval = {'mean': -1.0, 'low': -1.1, 'high': -0.9, 'of_seeds': [-1.0] * 3}
  rows = [{'name': 'on', 'minus': {'off': interval}}]
  (runs / 'a.json').write_text(json.dumps({'rows': rows}))
  fields = {
    'system': 'RETRO',
    'source': 'the paper',
    'paper': '',
    'measured': 'runs',
    'evidence': _claim().evidence,
  }
  content = {
    'summary': ['Verdicts.'],
    'preface': ['Intervals.'],
    'rule': ['The rule.'],
    'words': [['off', 'without']],
    'against': ['It is small.'],
    'commands': {'runs': ['`python -m experiments.retro.compare`']},
    'claims': [
      {**fields, 'claim': 'it helps', 'expected': 'below', 'headline': True},
      {**fields, 'claim': 'own', 'expected': 'below', 'control': True}
      | {'short': 'by itself', 'machine': 'H100', 'added': True},
      {**fields, 'claim': 'it harms', 'expected': 'above'},
      {**fields, 'claim': 'level', 'expected': 'near', 'within': 1.02},
      {
        **fields,
        'claim': 'elsewhere',
        'expected': 'below',
        'evidence': [{**_claim().evidence[0], 'file': 'b.json'}],
      },
    ],
  }
  (tmp_path / 'claims.json').write_text(json.dumps(content))
  monkeypatch.setattr(claims, 'CLAIMS', tmp_path / 'claims.json')
  want = [claims.FOR, *claims.VERDICTS]
  assert claims.run(runs, output) == want
  page = (output / claims.DETAILS).read_text()
  order = ['The rule.', 'without', 'It is small.', 'Headline']
  order += [f'### {name}' for name in ('Against', 'Undecided', 'Not tested')]
  parts = [page.index(x) for x in order]
  assert parts == sorted(parts)
  for name, begin in zip(
    ('it helps', 'it harms', 'level', 'elsewhere'), parts[-4:], strict=True
  ):
    assert page.index(name) > begin
  assert '1 for, 1 against, 1 undecided, 1 not tested. ' in page
  assert 'in the same tables: 1.' in page
  papers, controls = (output / claims.FILE).read_text().split('## Our controls')
  for x in ('it helps', 'it harms', 'level', 'elsewhere'):
    assert papers.count(f'| {x} | ') == 1
  row = '| by itself | for | -1.0000 [-1.1000, -0.9000] | after; H100 |'
  assert row in controls
  assert (output / claims.PICTURE).stat().st_size > 5000
  first = (output / claims.FILE).read_bytes()
  assert claims.run(None, output) == want  # the copies
  assert (output / claims.FILE).read_bytes() == first
  assert (output / claims.DETAILS).read_text() == page
  assert 'it harms' in capsys.readouterr().out
