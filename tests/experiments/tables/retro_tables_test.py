# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's tables beside results files that the test writes."""

import csv
import json
import subprocess
import sys

from matplotlib import figure as figure_lib
import numpy as np
import pytest

from configs import retro_qa
from configs.bases import retro_base
from experiments.tables import paper_table, retro_tables, run_results
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data
from tests.retro_jax.data import tiny_data

MODES = (('baseline', 'off'), ('RETRO off', 'off'), ('RETRO, k=2', 'on'))


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
  return retro_tables.load(name), runs


@pytest.mark.parametrize('name', retro_tables.NAMES)
def test_every_table_without_a_run(name, tmp_path):
  table = retro_tables.load(name)
  heads, body = retro_tables.lines(table, {})
  assert len(body) >= 5 and {len(row) for row in body} == {len(heads)}
  width = len(table.columns)
  mine = [cell for row in body for cell in row[1 + width :]]
  assert set(mine) <= {'', 'not run'} and 'not run' in mine
  files = retro_tables.write(name, {}, tmp_path)
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
    'retrofit': {
      'RETROfit, on': ['-', '-', '-', '-', '18.46', '18.97'],
      'RETRO from scratch, on': ['.82', '.77', '.71', '.66'],
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
  runs = run_results.parse_runs([str(tmp_path / 'a')])
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
  runs |= run_results.parse_runs([f'c4={tmp_path}/c4'])
  body = {name: row[-1] for name, row in _body('14', runs).items()}
  assert body['C4 bits per byte, RETRO[ON]'] == '7'
  assert body['held-out documents of ours, baseline'] == 'a 1; c4 5'


def test_lines_of_table_13_are_runs(tmp_path):
  for key, start in (('cca_all', 1.0), ('no_retrieval', 2.0)):
    _evaluated(tmp_path / key, start)
  runs = run_results.parse_runs(
    [str(tmp_path / k.name) for k in _dirs(tmp_path)]
  )
  body = _body('13', runs)
  assert body['CA all layers'] == ['.860', '3', '2']
  assert body['no retrieval'] == ['.987', '2', '']
  assert body['CA top layer (12/12)'] == ['.831', 'not run', 'not run']
  files = retro_tables.write('13', runs, tmp_path / 'out')
  assert files[2].name == 'table13.png' and files[2].stat().st_size > 5000
  assert 'scale unknown' in files[0].read_text()


def test_retrofit_against_from_scratch(tmp_path):
  for start, name in enumerate(('retrofit', 'scratch')):
    _evaluated(tmp_path / name, start + 1.0)
  runs = run_results.parse_runs([str(path) for path in _dirs(tmp_path)])
  assert [row[-2:] for row in _body('retrofit', runs).values()] == [
    ['retrofit 1; scratch 2', 'retrofit 10; scratch 20'],
    ['2', '20'],
    ['3', '30'],
    ['3', '30'],
    ['4', '40'],
  ]
  del runs['retrofit']
  body = _body('retrofit', runs)
  assert body['RETROfit, on'][-2:] == ['not run', 'not run']
  files = retro_tables.write('retrofit', runs, tmp_path / 'out')
  assert [path.name for path in files][:2] == ['retrofit.md', 'retrofit.csv']


def test_table_3_says_that_it_is_not_the_papers():
  table = retro_tables.load('3')
  assert "in place of the paper's" in table.title
  assert "not the paper's Table 3" in table.note


def _saved(root, **fields):
  """The checkpoint of a run of 10 steps of 400 sequences."""
  config = retro_base.get_config()
  config.data_dir = str(root)
  config.batch_size = 400
  config.update(fields)
  return checkpoints.Saved(config, 10, {}, {'a': np.zeros((3, 500_000))})


def test_scales_are_those_of_the_run_that_was_evaluated(tmp_path, monkeypatch):
  """A folder of results has no checkpoint, but says whose they are."""
  root = tiny_data.make(tmp_path)
  qa = retro_qa.get_config()
  saved = {
    'retro': _saved(root),
    'baseline': _saved(root, retrieval=False),
    'qa': checkpoints.Saved(qa, 10, {}, {}),
  }
  qa.data_dir = 'nowhere'

  def find(workdir):
    name = workdir.rsplit('/', 1)[-1]
    if name not in saved:
      raise FileNotFoundError(workdir)
    return saved[name]

  monkeypatch.setattr(checkpoints, 'find', find)
  chunks = retro_data.DataFolder(root).chunks('train')
  assert chunks.num_chunks > 10
  trained = '1.5 M parameters, 10 steps, 2.0 M tokens'
  tokens = chunks.lengths(np.arange(chunks.num_chunks)).sum()
  retro = (
    f'{trained}, datastore of {chunks.num_chunks} chunks, {tokens:,} tokens'
  )
  described = {
    'settings': {'workdir': 'runs/retro'},
    'nested': {'evaluate': {'workdir': 'runs/retro'}},
    'baseline': {'workdir': None},
    'knn': {'model_workdir': 'runs/baseline'},
    'gone': {'workdir': 'runs/gone'},
  }
  for name, settings in described.items():
    rows = [{'name': 'RETRO off', 'bits_per_byte': 1.0}]
    (tmp_path / name).mkdir()
    file = 'knn_lm.json' if name == 'knn' else 'evaluation.json'
    content = {'rows': rows, 'settings': settings}
    (tmp_path / name / file).write_text(json.dumps(content))
    described[name] = run_results.describe(tmp_path / name)
  _write(tmp_path / 'rows', 'lambada.json', [{'workdir': 'runs/retro'}])
  assert run_results.describe(tmp_path / 'rows') == described['settings']
  assert described == {
    'settings': f'of runs/retro, {retro}',
    'nested': f'of runs/retro, {retro}',
    'baseline': trained,
    'knn': f'of runs/baseline, {trained}',
    'gone': 'of runs/gone, no checkpoint there, scale unknown',
  }
  assert run_results.describe(tmp_path / 'retro') == retro
  # Rows of questions have lengths of their own.
  assert run_results.describe(tmp_path / 'qa') == (
    '0.0 M parameters, 10 steps of 128 questions, datastore unknown: none in '
    'nowhere'
  )
  qa.qa.passages = ('results.json',)
  assert run_results.describe(tmp_path / 'qa').endswith(
    'questions, 20 passages a question, from files'
  )


def _dirs(folder):
  return sorted(path for path in folder.iterdir() if path.is_dir())


def test_curves_are_read_point_by_point(tmp_path, monkeypatch):
  points = [
    {'alpha': i / 8, 'bits_per_byte': 9 - i, 'share': i / 8}
    for i in range(1, 9)
  ]
  _write(
    tmp_path / 'a',
    'leakage.json',
    [
      {'name': 'RETRO, k=2', 'points': points},
      {'name': 'baseline', 'points': []},
    ],
  )
  body = _body('leakage', {'a': tmp_path / 'a'})
  assert body['alpha 25 %'] == ['yes', '0.25', 'not run', 'not run', '7']
  pictures = []
  monkeypatch.setattr(
    figure_lib.Figure, 'savefig', lambda self, *_, **__: pictures.append(self)
  )
  table = retro_tables.load('leakage')
  assert retro_tables.plot(table, {'a': tmp_path / 'a'}, tmp_path / 'a.png')
  (curve,) = pictures[0].axes[0].lines  # shares of chunks are no bits per byte
  assert curve.get_label() == 'ours, a: RETRO[ON]'
  np.testing.assert_array_equal(curve.get_xdata(), np.arange(8, 0, -1))


def test_answers_stand_beside_their_own_set(tmp_path):
  rows = [
    {'name': f'{name} {mode}', 'set': name, 'retrieval': mode, 'exact_match': x}
    for name, mode, x in (
      ('webquestions:test', 'on', 3.0),
      ('webquestions:test', 'off', 2.0),
      ('nq_open:test', 'on', 1.0),
    )
  ]
  _write(tmp_path, 'retro_qa.json', rows)
  body = _body('5', {'a': tmp_path})
  assert body['RETRO 7.5B, passages of DPR'][-1] == '1'
  assert body['webquestions (test), RETRO'][-1] == '3'
  without = body['webquestions (test), RETRO without passages']
  assert without[-1] == '2'
  assert body['curatedtrec (test), RETRO'][-1] == 'not run'
  assert body['FiD'][-1] == 'not run'


def test_a_fid_stands_apart_from_retro(tmp_path):
  rows = [
    {'name': name, 'set': 'webquestions:test', 'exact_match': x} | more
    for name, x, more in (
      ('webquestions:test on', 3.0, {'retrieval': 'on'}),
      ('webquestions:test off', 2.0, {'retrieval': 'off'}),
      ('baseline', 1.0, {'retrieval': 'off'}),
    )
  ]
  _write(tmp_path, 'fid_qa.json', rows)
  body = _body('5', {'a': tmp_path})
  line = 'webquestions (test), '
  assert body[f'{line}FiD'][-1] == '3'
  assert body[f'{line}FiD without passages'][-1] == '2'
  assert body[f"{line}FiD's closed-book twin"][-1] == '1'
  assert body[f'{line}RETRO'][-1] == body[f'{line}closed book'][-1] == 'not run'


def test_a_knn_lm_stands_beside_figures_of_its_own_text(tmp_path):
  _evaluated(tmp_path)
  figures = {'model alone': 9.0, 'kNN-LM': 8.0, 'RETRO, k=2': 7.0}
  _write(
    tmp_path,
    'knn_lm.json',
    [{'name': n, 'word_perplexity': x} for n, x in figures.items()],
  )
  body = _body('4', {'a': tmp_path})
  for name, figure in (
    ('baseline transformer', '9'),
    ("kNN-LM (the paper's own), Wikipedia", '8'),
    ('RETRO, Wikipedia', '7'),
  ):
    assert body[name][-1] == figure


def test_null_is_not_a_figure(tmp_path):
  _write(
    tmp_path,
    'evaluation.json',
    [{'name': 'RETRO, k=2', 'retrieval': 'on', 'bits_per_byte': None}],
  )
  assert run_results.find(paper_table.Source(), tmp_path) is None


def test_errors(tmp_path):
  with pytest.raises(ValueError, match='--run=a=nowhere: expected a folder'):
    run_results.parse_runs(['a=nowhere'])
  with pytest.raises(ValueError, match='given before'):
    run_results.parse_runs([f'a={tmp_path}', f'a={tmp_path}'])
  (tmp_path / 'evaluation.json').write_text('[]')
  with pytest.raises(ValueError, match='evaluation.json: expected.*rows'):
    retro_tables.lines(retro_tables.load('4'), {'a': tmp_path})


def test_the_command_writes_several_tables(tmp_path):
  _evaluated(tmp_path / 'small')
  result = subprocess.run(
    [
      sys.executable,
      '-m',
      'experiments.tables.retro_tables',
      '--table=3',
      '--table=4',
      f'--run={tmp_path}/small',
      f'--output={tmp_path}/out',
    ],
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert result.returncode == 0, result.stderr[-2000:]
  written = {path.name for path in (tmp_path / 'out').iterdir()}
  assert written == {
    'table3.md',
    'table3.csv',
    'table3.png',
    'table4.md',
    'table4.csv',
    'table4.png',
  }
  assert (
    '| RETRO, Wikipedia | 4B | 18.46 | 18.97 | 30 |'
    in (tmp_path / 'out' / 'table4.md').read_text()
  )
