# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The exact match of Table 2: which systems its rows are, and where it stands."""

import json
import types

import pytest

from experiments.tables import realm_systems, realm_table1, realm_table2
from retrieval.questions import question_sets
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm

_PAPER = {  # Guu et al. 2020, Table 2: exact match, zero-shot recall@5
  'salient-salient': (38.2, 38.5),
  'salient-mlm': (37.4, 38.5),
  'ict-salient': (35.3, 13.9),
  'ict-mlm': (31.3, 13.9),
  'uniform-uniform': (32.3, 24.2),
  'span-span': (35.3, 26.1),
  'stale-stale': (28.7, 15.1),
}


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_open_qa.make_data(tmp_path_factory.mktemp('table2') / 'data')


@pytest.fixture
def run(data, monkeypatch):
  """Runs the command with flags."""

  def run_command(root, row=(), dataset=(), qa_config=None):
    parsed = types.SimpleNamespace(
      row=list(row), dataset=list(dataset), qa_config=qa_config
    )
    found = types.SimpleNamespace(FLAGS=parsed)
    monkeypatch.setattr(realm_table2, 'flags', found)
    realm_table2.run(tiny_realm.get_config(data), str(root))

  return run_command


def _spec(data):
  return f'custom:test={data}/questions.jsonl'


def _write(root, system, data, mean, settings):
  """Measures as `realm_systems.run` leaves them."""
  (questions,) = question_sets.load_sets([_spec(data)])
  key = realm_systems.fingerprint(questions, settings)
  share = {'mean': mean, 'low': mean - 0.02, 'high': mean + 0.02}
  row = {'dataset': questions.name, 'questions': 6}
  found = {
    **{'step': 4, 'batch_size': 4, 'training_questions': 6},
    **{'parameters': 1_000_000, 'blocks': 40, 'block_length': 32},
    'sets': {key: row | {'official_exact_match': share, 'top_5_dpr': share}},
  }
  folder = system.folder(root)
  folder.mkdir(parents=True)
  (folder / realm_systems.FILE).write_text(json.dumps(found))


def test_the_rows_are_the_papers():
  rows = {
    realm_table2.SYSTEMS[row.run].name: tuple(map(float, row.paper))
    for row in realm_table2.TABLE.rows
    if any(row.paper)
  }
  assert rows == _PAPER
  # What Table 1 has, too, lies in the same folders.
  for name, other in (('salient', 'realm'), ('ict', 'orqa')):
    assert realm_table2.SYSTEMS[name] == realm_table1.SYSTEMS[other]


def test_exact_match_stands_in_the_row_of_its_system(
  data, tmp_path, run, capsys
):
  config = tiny_open_qa.get_config(data)
  systems = realm_table2.SYSTEMS
  _write(tmp_path, systems['realm_encoder'], data, 0.427, config.evaluate)
  run(tmp_path, dataset=[_spec(data)], qa_config=config)
  printed = capsys.readouterr().out
  lines = printed.splitlines()
  (line,) = [x for x in lines if '42.7 ±2.0' in x]
  assert '35.3' in line and '13.9' in line
  assert '40 blocks' in ' '.join(printed.split())
  rest = [x for x in lines if 'not run' in x and '42.7' not in x]
  assert len(rest) == len(systems) - 1
  assert all(x.count('not run') == 2 for x in rest)
  # What was measured otherwise is no figure of this column.
  config.evaluate.reader_beam = 1
  run(tmp_path, dataset=[_spec(data)], qa_config=config)
  assert '42.7' not in capsys.readouterr().out
  run(tmp_path)
  assert '42.7' in capsys.readouterr().out


def test_rows_are_fine_tuned_on_the_data_of_the_pretraining(
  data, tmp_path, run, monkeypatch
):
  made = []
  monkeypatch.setattr(realm_systems, 'run', lambda *x: made.append(x))
  config = tiny_open_qa.get_config(data)
  config.data_dir, config.blocks.max_length = '', 99
  run(tmp_path, ['realm_retriever', 'bm25'], [_spec(data)], config)
  (system, fine, realm, sets, root), (words, *_) = made
  assert system == realm_systems.System('salient', 'mlm')
  assert words == realm_systems.System('bm25')
  assert fine.data_dir == realm.data_dir == str(data)
  assert fine.blocks.max_length == realm.blocks.max_length == 32
  assert root == tmp_path and [x.name for x in sets] == ['custom:test']


def test_half_of_the_flags_is_refused(data, tmp_path, run):
  with pytest.raises(ValueError, match='go together'):
    run(tmp_path, dataset=[_spec(data)])
  with pytest.raises(ValueError, match='go together'):
    run(tmp_path, qa_config=tiny_open_qa.get_config(data))
