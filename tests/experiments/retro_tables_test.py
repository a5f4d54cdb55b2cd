# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's tables beside results files that the test writes."""

import csv
import json
import math
import subprocess
import sys

import pytest

from experiments import retro_paper
from experiments import retro_tables

MODES = (('twin', 'off'), ('RETRO off', 'off'), ('RETRO, k=2', 'on'))


def _write(folder, name, rows):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / name).write_text(json.dumps({'rows': rows}))


def _evaluated(folder, start=1.0):
  _write(
    folder,
    'evaluation.json',
    [
      {
        'name': name,
        'retrieval': retrieval,
        'bits_per_byte': start + i,
        'word_perplexity': 10 * (start + i),
      }
      for i, (name, retrieval) in enumerate(MODES)
    ],
  )


def _body(name, runs):
  return {row[0]: row[1:] for row in retro_tables.lines(*_of(name, runs))[1]}


def _of(name, runs):
  return retro_paper.TABLES[name], runs


@pytest.mark.parametrize('name', retro_paper.TABLES)
def test_every_table_without_a_run(name, tmp_path):
  table = retro_paper.TABLES[name]
  heads, body = retro_tables.lines(table, {})
  assert len(body) > 4 and {len(row) for row in body} == {len(heads)}
  width = len(table.columns)
  mine = [cell for row in body for cell in row[1 + width :]]
  assert set(mine) <= {'', 'not run'} and 'not run' in mine
  files = retro_tables.write(name, table, {}, tmp_path)
  assert [f.suffix for f in files] == ['.md', '.csv']
  with open(files[1]) as f:
    assert list(csv.reader(f)) == [heads, *body]
  text = files[0].read_text()
  assert 'No run was given.' in text and table.scale in text


def test_figures_of_the_paper():
  """Some of each table, from the paper and not from our data module."""
  wanted = {
    '4': {'RETRO, C4': ['174B', '12.87', '10.23']},
    '5': {'FiD + Distill.': ['54.7']},
    '13': {'RETRO': ['.822'], 'no retrieval': ['.987']},
    '14': {
      'Lambada accuracy, RETRO[ON]': ['.52', '.60', '.67', '.73'],
      'datastore of 36B tokens (2 %)': ['.96', '.90', '.83', '.77'],
      '100 neighbors': ['.85', '.79', '-', '.67'],
    },
    '15': {'github': ['.420', '.645', '.358', '.367', '.199']},
  }
  for name, rows in wanted.items():
    body = _body(name, {})
    for row, figures in rows.items():
      assert body[row][: len(figures)] == figures


def test_the_runs_of_table_14(tmp_path):
  _evaluated(tmp_path / 'a')
  _evaluated(tmp_path / 'c4', start=5.0)
  where = {'retrieval': 'on', 'bits_per_byte': 3.5}
  _write(tmp_path / 'a', 'sweep_datastore.json', [{'share': 0.05, **where}])
  _write(
    tmp_path / 'a',
    'sweep_neighbors.json',
    [
      {'num_neighbors': 0, 'retrieval': 'off', 'bits_per_byte': 4.0},
      {'num_neighbors': 5, **where},
    ],
  )
  _write(
    tmp_path / 'a',
    'lambada.json',
    [{'name': 'RETRO off', 'retrieval': 'off', 'accuracy': 0.25}],
  )
  runs = retro_tables.parse_runs([str(tmp_path / 'a')])
  body = {name: row[-1] for name, row in _body('14', runs).items()}
  assert body['held-out documents of ours, baseline'] == '1'
  assert body['held-out documents of ours, RETRO[OFF]'] == '2'
  assert body['held-out documents of ours, RETRO[ON]'] == '3'
  assert body['datastore of 90B tokens (5 %)'] == '3.5'
  assert body['datastore of 36B tokens (2 %)'] == 'not run'
  assert body['5 neighbors'] == '3.5'
  assert body['Lambada accuracy, RETRO[OFF]'] == '0.25'
  assert body['Lambada accuracy, RETRO[ON]'] == 'not run'
  # What is not of the paper's set is not shown as if it were.
  assert body['C4 bits per byte, RETRO[ON]'] == 'not run'
  runs |= retro_tables.parse_runs([f'c4={tmp_path}/c4'])
  body = {name: row[-1] for name, row in _body('14', runs).items()}
  assert body['C4 bits per byte, RETRO[ON]'] == '7'
  assert body['held-out documents of ours, baseline'] == 'a 1; c4 5'


def test_lines_of_table_13_are_runs(tmp_path):
  for key, start in (('cca_all', 1.0), ('no_retrieval', 2.0)):
    _evaluated(tmp_path / key, start)
  runs = retro_tables.parse_runs(
    [str(tmp_path / k.name) for k in _dirs(tmp_path)]
  )
  body = _body('13', runs)
  assert body['CA all layers'] == ['.860', '3', '2']
  assert body['no retrieval'] == ['.987', '2', '']
  assert body['CA top layer (12/12)'] == ['.831', 'not run', 'not run']
  table = retro_paper.TABLES['13']
  files = retro_tables.write('13', table, runs, tmp_path / 'out')
  assert files[2].name == 'table13.png' and files[2].stat().st_size > 5000
  assert 'scale unknown' in files[0].read_text()


def _dirs(folder):
  return sorted(path for path in folder.iterdir() if path.is_dir())


def test_curves_are_read_point_by_point(tmp_path):
  points = [
    {'alpha': i / 8, 'bits_per_byte': 9 - i, 'share': i / 8}
    for i in range(1, 9)
  ]
  _write(
    tmp_path / 'a',
    'leakage.json',
    [{'name': 'RETRO, k=2', 'points': points}, {'name': 'twin', 'points': []}],
  )
  body = _body('leakage', {'a': tmp_path / 'a'})
  assert body['alpha 25 %'] == ['yes', '0.25', 'not run', 'not run', '7']


def test_null_is_not_a_figure(tmp_path):
  _write(
    tmp_path,
    'evaluation.json',
    [{'name': 'RETRO, k=2', 'retrieval': 'on', 'bits_per_byte': None}],
  )
  assert math.isnan(retro_tables.find(retro_paper.Source(), tmp_path))


def test_errors(tmp_path):
  with pytest.raises(ValueError, match='--run=a=nowhere: expected a folder'):
    retro_tables.parse_runs(['a=nowhere'])
  with pytest.raises(ValueError, match='given before'):
    retro_tables.parse_runs([f'a={tmp_path}', f'a={tmp_path}'])
  (tmp_path / 'evaluation.json').write_text('[]')
  with pytest.raises(ValueError, match='evaluation.json: expected.*rows'):
    retro_tables.lines(retro_paper.TABLES['4'], {'a': tmp_path})


def test_the_command_writes_several_tables(tmp_path):
  _evaluated(tmp_path / 'small')
  result = subprocess.run(
    [
      *(sys.executable, '-m', 'experiments.retro_tables', '--table=3'),
      *('--table=4', f'--run={tmp_path}/small', f'--output={tmp_path}/out'),
    ],
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert result.returncode == 0, result.stderr[-2000:]
  written = {path.name for path in (tmp_path / 'out').iterdir()}
  assert written == {
    *('table3.md', 'table3.csv', 'table3.png'),
    *('table4.md', 'table4.csv', 'table4.png'),
  }
  assert (
    '| RETRO, Wikipedia | 4B | 18.46 | 18.97 | 30 |'
    in (tmp_path / 'out' / 'table4.md').read_text()
  )
