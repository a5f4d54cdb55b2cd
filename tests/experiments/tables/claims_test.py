# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Verdicts by intervals and seeds, and the page made of results files."""

import json

import pytest

from experiments.tables import claims


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


def _difference(low, high, seeds=()):
  mean = (low + high) / 2
  return claims.Difference(
    what='x', mean=mean, low=low, high=high, of_seeds=seeds
  )


@pytest.mark.parametrize(
  'expected, low, high, seeds, want',
  [
    ('below', -2.0, 0.1, (), claims.UNDECIDED),
    ('below', 1.0, 2.0, (), claims.AGAINST),
    ('above', 1.0, 2.0, (), claims.FOR),
    ('below', -2.0, -1.0, (-3.0, -0.1), claims.FOR),
    ('below', -2.0, -1.0, (-3.0, 0.1), claims.UNDECIDED),
    ('above', 1.0, 2.0, (3.0, -0.1), claims.UNDECIDED),
    ('near', -0.4, 0.4, (), claims.FOR),
    ('near', -0.6, 0.4, (), claims.UNDECIDED),
    ('near', 0.6, 0.8, (), claims.AGAINST),
    ('near', -0.4, 0.4, (-0.6, 0.6), claims.UNDECIDED),
    ('near', 0.6, 0.8, (0.4, 1.0), claims.UNDECIDED),
  ],
)
def test_verdict_of_one_interval(expected, low, high, seeds, want):
  found = [_difference(low, high, seeds)]
  assert claims.verdict(_claim(expected, within=0.5), found) == want


def test_all_intervals_have_to_agree():
  below, above = _difference(-2.0, -1.0), _difference(1.0, 2.0)
  for found, want in (
    ([below, below], claims.FOR),
    ([above, above], claims.AGAINST),
    ([below, above], claims.UNDECIDED),
    ([], claims.paper_table.NOT_RUN),
  ):
    assert claims.verdict(_claim(), found) == want


def test_reads_the_named_difference(tmp_path):
  interval = {'mean': -1.0, 'low': -2.0, 'high': -0.5, 'of_seeds': [-1.5, -0.5]}
  rows = [{'name': 'off'}, {'name': 'on', 'minus': {'off': interval}}]
  (tmp_path / 'a.json').write_text(json.dumps({'rows': rows}))
  claim = _claim()
  (found,) = claims.read(claim, [tmp_path / 'none', tmp_path])
  assert (found.mean, found.low, found.high) == (-1.0, -2.0, -0.5)
  assert found.text() == 'a.json -1.0000 [-2.0000, -0.5000], 2 seeds'
  assert claims.read(_claim(files=('a.json', 'b.json')), [tmp_path]) == []
  (tmp_path / 'a.json').write_text(json.dumps({'rows': rows[:1]}))
  assert claims.read(claim, [tmp_path]) == []  # the row was not measured
  rows = [{'name': 'on', 'minus': {'off': {'mean': 1}}}]
  (tmp_path / 'a.json').write_text(json.dumps({'rows': rows}))
  with pytest.raises(ValueError, match=r'a\.json'):
    claims.read(claim, [tmp_path])


def test_the_page_names_every_claim_and_the_evidence_is_kept(
  tmp_path, monkeypatch, capsys
):
  runs, output = tmp_path / 'runs', tmp_path / 'docs'
  runs.mkdir()
  interval = {'mean': -1.0, 'low': -2.0, 'high': -0.5}
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
    'preface': ['Intervals.'],
    'commands': {'runs': ['`python -m experiments.retro.compare`']},
    'claims': [
      {**fields, 'claim': 'it helps', 'expected': 'below'},
      {**fields, 'claim': 'own', 'expected': 'below', 'control': True},
      {**fields, 'claim': 'it harms', 'expected': 'above'},
      {**fields, 'claim': 'level', 'expected': 'near', 'within': 1.0},
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
  want = [claims.FOR, *claims.NAMES]
  assert claims.run(runs, output) == want
  page = (output / claims.FILE).read_text()
  parts = [page.index(f'## {name.capitalize()}') for name in want[1:]]
  assert parts == sorted(parts)
  for name, begin in zip(
    ('it helps', 'it harms', 'level', 'elsewhere'), parts, strict=True
  ):
    assert page.index(name) > begin
  assert '1 decided for, 1 decided against, 1 undecided, 1 not run; ' in page
  assert 'beside them 1 controls' in page
  assert (output / claims.PICTURE).stat().st_size > 5000
  first = (output / claims.FILE).read_bytes()
  assert claims.run(None, output) == want  # the copies
  assert (output / claims.FILE).read_bytes() == first
  assert 'it harms' in capsys.readouterr().out
