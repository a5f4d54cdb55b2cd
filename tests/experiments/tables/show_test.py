# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The papers' tables beside results files that the test writes."""

import csv
import json

import numpy as np
import pytest

from configs import retro_pretrain_quickstart
from experiments.tables import paper_table, show
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data
from tests.retro_jax.data import tiny_data

MODES = (('baseline', 'off'), ('RETRO off', 'off'), ('RETRO, k=2', 'on'))


def _write(folder, name, rows, **content):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / name).write_text(json.dumps({'rows': rows, **content}))


def _evaluated(folder, start=1.0):
  rows = [
    {
      'name': name,
      'retrieval': retrieval,
      'bits_per_byte': start + i,
      'word_perplexity': 10 * (start + i),
    }
    for i, (name, retrieval) in enumerate(MODES)
  ]
  _write(folder, 'evaluation.json', rows)


def _body(name, runs):
  return {row[0]: row[1:] for row in show.build(name, runs).rows}


@pytest.mark.parametrize('name', paper_table.NAMES)
def test_every_table_without_a_run(name, tmp_path):
  table, built = paper_table.load(name), show.build(name, {})
  assert len(built.rows) >= 5
  assert {len(row) for row in built.rows} == {len(built.heads)}
  mine = [cell for row in built.rows for cell in row[1 + len(table.columns) :]]
  assert set(mine) <= {'', 'not run'} and 'not run' in mine
  files = show.show(name, {}, tmp_path)
  assert [f.name for f in files] == [f'{name}.md', f'{name}.csv']
  with open(files[1]) as f:
    assert list(csv.reader(f)) == [built.heads, *built.rows]
  assert table.scale in files[0].read_text()


def test_figures_of_the_papers():
  """Some of each table, from the paper and not from our data module."""
  wanted = {
    'retro_4': {'RETRO, C4': ['174B', '12.87', '10.23']},
    'retro_5': {'FiD + Distill.': ['54.7']},
    'retro_13': {'RETRO': ['.822'], 'no retrieval': ['.987']},
    'retro_14': {
      'Lambada accuracy, RETRO[ON]': ['.52', '.60', '.67', '.73'],
      'datastore of 36B tokens (2 %)': ['.96', '.90', '.83', '.77'],
      '100 neighbors': ['.85', '.79', '-', '.67'],
    },
    'retro_retrofit': {'RETROfit, on': ['-', '-', '-', '-', '18.46', '18.97']},
    'retro_15': {'github': ['.420', '.645', '.358', '.367', '.199']},
    'realm_1': {
      'ORQA': ['ICT + BERT', '330m', '33.3', '36.4', '30.1'],
      'REALM, X CC-News': ['REALM', '330m', '40.4', '40.7', '42.9'],
    },
    'realm_2': {'REALM': ['38.2', '38.5'], '30x stale MIPS': ['28.7', '15.1']},
  }
  for name, rows in wanted.items():
    body = _body(name, {})
    for row, values in rows.items():
      assert body[row][: len(values)] == values


def test_the_runs_of_table_14(tmp_path):
  _evaluated(tmp_path / 'a')
  _evaluated(tmp_path / 'c4', start=5.0)
  where = {'retrieval': 'on', 'bits_per_byte': 3.5}
  path = tmp_path / 'a' / 'evaluation.json'
  rows = json.loads(path.read_text())['rows']
  _write(path.parent, path.name, [*rows, {'share': 0.05, **where}])
  _write(
    tmp_path / 'a',
    'lambada.json',
    [{'name': 'RETRO off', 'retrieval': 'off', 'accuracy': 0.25}],
  )
  runs = show.parse_runs([str(tmp_path / 'a')])
  body = {name: row[-1] for name, row in _body('retro_14', runs).items()}
  assert body['held-out documents of ours, baseline'] == '1'
  assert body['held-out documents of ours, RETRO[OFF]'] == '2'
  assert body['held-out documents of ours, RETRO[ON]'] == '3'
  assert body['datastore of 90B tokens (5 %)'] == '3.5'
  assert body['datastore of 36B tokens (2 %)'] == 'not run'
  assert body['Lambada accuracy, RETRO[OFF]'] == '0.25'
  assert body['Lambada accuracy, RETRO[ON]'] == 'not run'
  # What is not of the paper's set is not shown as if it were.
  assert body['C4 bits per byte, RETRO[ON]'] == 'not run'
  runs |= show.parse_runs([f'c4={tmp_path}/c4'])
  body = {name: row[-1] for name, row in _body('retro_14', runs).items()}
  assert body['C4 bits per byte, RETRO[ON]'] == '7'
  assert body['held-out documents of ours, baseline'] == 'a 1; c4 5'


def test_points_of_curves_questions_and_knn(tmp_path):
  points = [{'alpha': i / 8, 'bits_per_byte': 9 - i} for i in range(1, 9)]
  _write(tmp_path, 'leakage.json', [{'name': 'RETRO, k=2', 'points': points}])
  sets = [
    {'name': f'{name} {mode}', 'set': name, 'retrieval': mode, 'exact_match': x}
    for name, mode, x in (
      ('webquestions:test', 'on', 3.0),
      ('webquestions:test', 'off', 2.0),
      ('nq_open:test', 'on', 1.0),
    )
  ]
  _write(tmp_path, 'retro_qa.json', sets)
  _evaluated(tmp_path)
  knn = {'model alone': 9.0, 'kNN-LM': 8.0, 'RETRO, k=2': None}
  _write(
    tmp_path,
    'knn_lm.json',
    [{'name': n, 'word_perplexity': x} for n, x in knn.items()],
  )
  runs = {'a': tmp_path}
  body = _body('retro_leakage', runs)
  assert body['alpha 25 %'] == ['yes', 'not run', 'not run', 'not run', '7']
  body = _body('retro_5', runs)
  assert body['RETRO 7.5B, passages of DPR'][-1] == '1'
  assert body['webquestions (test), RETRO'][-1] == '3'
  assert body['webquestions (test), RETRO without passages'][-1] == '2'
  assert body['FiD'][-1] == 'not run'
  body = _body('retro_4', runs)
  assert body['baseline transformer'][-1] == '9'
  assert body["kNN-LM (the paper's own), Wikipedia"][-1] == '8'
  assert body['RETRO, Wikipedia'][-1] == 'not run'  # null is not a figure


def test_shares_of_questions(tmp_path):
  def share(mean):
    return {'mean': mean, 'low': mean - 0.01, 'high': mean + 0.01}

  row = {'dataset': 'webquestions:test', 'questions': 9}
  row |= {'official_exact_match': share(0.04), 'f1': share(0.1)}
  for folder in ('orqa', 'salient/qa'):
    _write(tmp_path / folder, 'qa_evaluation.json', [row])
  recalls = [
    {'questions_file': f'x/{file}', 'retriever': by, 'recall@5': share(mean)}
    for file, by, mean in (
      ('webquestions.json', 'before', 0.1),
      ('webquestions.json', 'step 240', 0.2),
      ('curatedtrec.tsv', 'step 240', 0.3),
    )
  ]
  _write(tmp_path / 'salient', 'evaluation.json', recalls)
  _write(tmp_path / 'ict', 'evaluation.json', recalls)
  names = ('orqa', 'salient', 'ict')
  runs = show.parse_runs([f'{tmp_path}/{x}' for x in names])
  ours = _body('realm_1', runs)['ORQA'][5:]
  assert ours == ['not run', '4.0 ±1.0', '10.0 ±1.0', *['not run'] * 3]
  body = _body('realm_2', runs)
  assert body['REALM'][2:] == ['4.0 ±1.0', 'not run', '20.0 ±1.0', '30.0 ±1.0']
  assert body['before any training'][2:][2:] == ['10.0 ±1.0', 'not run']


def _saved(root, **fields):
  """The checkpoint of a run of 10 steps of 400 sequences."""
  config = retro_pretrain_quickstart.get_config()
  config.data_dir = str(root)
  config.batch_size = 400
  config.update(fields)
  return checkpoints.Saved(config, 10, {}, {'a': np.zeros((3, 500_000))})


def test_scales_are_those_of_the_run_that_was_evaluated(tmp_path, monkeypatch):
  """A folder of results has no checkpoint, but says whose they are."""
  root = tiny_data.make(tmp_path)
  saved = {'retro': _saved(root), 'baseline': _saved(root, retrieval=False)}

  def find(workdir):
    name = workdir.rsplit('/', 1)[-1]
    if name not in saved:
      raise FileNotFoundError(workdir)
    return saved[name]

  monkeypatch.setattr(checkpoints, 'find', find)
  chunks = retro_data.DataFolder(root).chunks('train')
  trained = '1.5 M parameters, 10 steps, 2.0 M tokens'
  tokens = chunks.lengths(np.arange(chunks.num_chunks)).sum()
  retro = (
    f'{trained}, datastore of {chunks.num_chunks} chunks, {tokens:,} tokens'
  )
  described = {
    'settings': {'workdir': 'runs/retro'},
    'baseline': {'workdir': None},
    'gone': {'workdir': 'runs/gone'},
  }
  for name, settings in described.items():
    rows = [{'name': 'RETRO off', 'bits_per_byte': 1.0}]
    _write(tmp_path / name, 'evaluation.json', rows, settings=settings)
    described[name] = paper_table.scale_of(tmp_path / name)
  assert described == {
    'settings': f'of runs/retro, {retro}',
    'baseline': trained,
    'gone': 'of runs/gone, no checkpoint there, scale unknown',
  }


def test_errors(tmp_path):
  with pytest.raises(ValueError, match='--run=a=nowhere'):
    show.parse_runs(['a=nowhere'])
  (tmp_path / 'evaluation.json').write_text('[]')
  with pytest.raises(ValueError, match='evaluation.json'):
    _body('retro_4', {'a': tmp_path})
