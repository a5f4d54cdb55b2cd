# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Points of the figures, their JSON files, and the figures of docs/."""

import json
import pathlib

import pytest

from experiments.tables import claims, figures

_AT = ['rows', 'name={x}']
_SERIES = {
  'name': 'on',
  'file': 'run{seed}.json',
  'at': _AT,
  'x': ['a', 'b', 'absent'],
}


def _figure(series, **panel):
  panel = {'x': 'row', 'y': 'bits', 'series': series} | panel
  fields = {'title': 'A title', 'caption': 'It falls.', 'measured': ['retro']}
  return {'name': 'one', **fields, 'panels': [panel]}


@pytest.fixture
def runs(tmp_path):
  for seed in (0, 1):
    rows = [
      {'name': name, 'mean': value + seed, 'low': value - 1, 'high': value + 3}
      for name, value in (('a', 2.0), ('b', 4.0), ('base', 1.5 - 2 * seed))
    ]
    path = tmp_path / f'run{seed}.json'
    path.write_text(json.dumps({'rows': rows}))
  return tmp_path


def _points(series, folder):
  (panel,) = figures.build(_figure([series]), [folder])['panels']
  return panel['series'][0]['points']


def test_points_of_one_run_keep_their_interval(runs):
  series = _SERIES | {'file': 'run0.json'}
  assert _points(series, runs) == [
    {'x': 'a', 'y': 2.0, 'low': 1.0, 'high': 5.0},
    {'x': 'b', 'y': 4.0, 'low': 3.0, 'high': 7.0},
  ]


def test_points_of_seeds_are_their_mean(runs):
  first, second = _points(_SERIES | {'seeds': [0, 1]}, runs)
  assert (first['y'], first['of_seeds']) == (2.5, [2.0, 3.0])
  assert (second['y'], second['of_seeds']) == (4.5, [4.0, 5.0])
  # Wider than that of one seed, [1, 5], by what the seeds differ.
  assert first['low'] < 0.5 and first['high'] > 4.5


def test_what_is_less_is_that_of_the_same_seed(runs):
  less = ['rows', 'name=base']
  first, _ = _points(_SERIES | {'seeds': [0, 1], 'less': less}, runs)
  assert first == {'x': 'a', 'y': 1.5, 'of_seeds': [0.5, 2.5]}
  first, _ = _points(_SERIES | {'file': 'run0.json', 'less': less}, runs)
  assert first == {'x': 'a', 'y': 0.5}  # two intervals give none


def test_a_file_beside_the_picture_holds_its_numbers(runs, tmp_path):
  series = [
    _SERIES | {'file': 'run0.json'},
    _SERIES | {'name': 'not run', 'file': 'none.json'},
  ]
  drawn = figures.draw_all(
    [_figure(series), _figure(series[1:])], [runs], tmp_path / 'out'
  )
  assert len(drawn) == 1
  assert sorted(x.name for x in (tmp_path / 'out').iterdir()) == [
    'one.json',
    'one.png',
  ]
  assert json.loads((tmp_path / 'out' / 'one.json').read_text()) == drawn[0]
  (panel,) = drawn[0]['panels']
  assert [x['name'] for x in panel['series']] == ['on']
  text = '\n'.join(figures.markdown(drawn))
  assert '(../results/figures/one.png)' in text
  assert '(../results/figures/one.json)' in text
  assert figures.markdown([]) == []


def test_the_figures_in_docs_are_those_of_its_evidence():
  docs = pathlib.Path(__file__).parents[3] / 'docs'
  spec = figures.load()
  for figure in spec:
    folder = docs / figures.FOLDER
    built = figures.build(figure, [docs / claims.EVIDENCE])
    shown = json.loads((folder / f'{figure["name"]}.json').read_text())
    assert shown == built
    assert (folder / f'{figure["name"]}.png').is_file()
    # Every point was measured.
    for panel, wanted in zip(built['panels'], figure['panels'], strict=True):
      for one, series in zip(panel['series'], wanted['series'], strict=True):
        assert [point['x'] for point in one['points']] == series['x']


def test_figures_and_commands_that_are_named_exist():
  content, found = claims.load()
  spec = figures.load()
  assert {x.figure for x in found} - {''} == {x['name'] for x in spec}
  commands = {*content['commands']}
  assert {y for x in spec for y in x['measured']} <= commands
  assert {x.measured for x in found} - {''} <= commands
  for claim in found:
    assert claim.expected in ('below', 'above', 'near')
    assert (claim.expected == 'near') == (claim.within > 0)
