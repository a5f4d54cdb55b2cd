# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Verdicts by intervals and seeds, and the page made of results files."""

import dataclasses
import json

import pytest

from experiments.tables import claims, intervals


def _claim(expected='below', within=0.0, **fields):
  return claims.Claim(claim='x', expected=expected, within=within, **fields)


def _difference(mean, error=0.1, seeds=5):
  of_seeds = (mean,) * seeds
  return claims.Difference('x', intervals.Estimate(mean, error, 1e6, of_seeds))


def _verdict(expected, *differences):
  within = 0.5 if expected == 'near' else 0.0
  (row,) = claims.judge([(_claim(expected, within), differences)])
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
    assert (judged[-1].verdict, judged[-1].p) == ('undecided', 1)


def test_the_page_names_every_claim(tmp_path, monkeypatch):
  interval = {'mean': -1.0, 'low': -1.1, 'high': -0.9, 'of_seeds': [-1.0] * 3}
  (tmp_path / claims.EVIDENCE).mkdir(parents=True)
  (tmp_path / claims.EVIDENCE / 'a.json').write_text(json.dumps(interval))
  one = {'evidence': [{'what': 'difference', 'file': 'a.json', 'at': []}]}
  rows = [
    one | {'claim': 'it helps', 'expected': 'below'},
    one | {'claim': 'itself', 'expected': 'below', 'control': True}
    | {'machine': 'H100', 'added': True},
    one | {'claim': 'it harms', 'expected': 'above'},
    one | {'claim': 'level', 'expected': 'near', 'within': 1.02},
    {'claim': 'elsewhere', 'expected': 'below'},
  ]  # fmt: skip
  file = tmp_path / 'claims.json'
  file.write_text(json.dumps({'summary': ['Verdicts.'], 'claims': rows}))
  monkeypatch.setattr(claims, 'CLAIMS', file)
  page, judged = claims.load(tmp_path)
  assert [x.verdict for x in judged] == [claims.FOR, *claims.VERDICTS]
  papers, controls = page.split('## Our controls')
  assert '1 for, 1 against, 1 undecided, 1 not tested.' in papers
  assert '| it harms | against | -1.0000 [-1.1000, -0.9000] |  |' in papers
  assert '| elsewhere | not tested |  |  |' in papers
  row = '| itself | for | -1.0000 [-1.1000, -0.9000] | after; H100 |'
  assert row in controls
