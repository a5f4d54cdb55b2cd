# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Table 2: what each row trains and measures, and where its exact match stands."""

import functools
import json
import types

import jax
import pytest

from experiments.engine import loop
from experiments.realm import (
  evaluate as realm_evaluate,
  train as realm_train,
  warm_start,
)
from experiments.tables import realm_systems, realm_table1, realm_table2
from realm_jax.serving import explain, trained as trained_lib
from retrieval.questions import question_sets
from retrieval.store import checkpoints
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm, tiny_trained

pytestmark = pytest.mark.usefixtures('fast')

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

  def run_command(root, row=(), dataset=(), qa_config=None, config=None):
    parsed = types.SimpleNamespace(
      row=list(row), dataset=list(dataset), qa_config=qa_config
    )
    found = types.SimpleNamespace(FLAGS=parsed)
    monkeypatch.setattr(realm_table2, 'flags', found)
    realm_table2.run(config or tiny_realm.get_config(data), str(root))

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


def test_the_table_before_anything_was_run(tmp_path, run, capsys):
  run(tmp_path)
  printed = capsys.readouterr().out
  rows = [line for line in printed.splitlines() if 'not run' in line]
  assert len(rows) == len(realm_table2.SYSTEMS) and ' ours ' in printed
  (line,) = [line for line in rows if '38.2' in line]
  assert 'REALM' in line and '38.5' in line and 'salient' in line


def test_rows_that_cannot_be_run_are_refused(tmp_path, run):
  with pytest.raises(ValueError, match="--row=bm26: expected one of \\['salie"):
    run(tmp_path, ['bm25', 'bm26'])
  with pytest.raises(ValueError, match='evaluate.questions is empty'):
    run(tmp_path, ['bm25'])


def test_rows_of_words_and_of_ict(data, tmp_path, run, capsys, monkeypatch):
  train = functools.partial(loop.train, devices=jax.devices()[:1])
  monkeypatch.setattr(loop, 'train', train)
  config = tiny_trained.get_config(data, eval_batches=0)
  run(tmp_path, ['bm25', 'ict'], config=config)
  lines = capsys.readouterr().out.splitlines()
  lines = [line for line in lines if 'not run' in line]
  # Two rows share ICT's retriever.
  assert len(lines) == len(realm_table2.SYSTEMS) - 3
  for name in ('bm25', 'ict'):
    rows = json.loads((tmp_path / name / 'zero_shot.json').read_text())
    assert {row['retriever'] for row in rows} == {name}
    # Five documents are counted though the config asks for others.
    assert all(0 <= row['recall@5']['mean'] <= 1 for row in rows)
  assert checkpoints.find(str(tmp_path / 'ict')).step == 4

  def again(*unused):
    raise AssertionError('ICT is trained twice.')

  monkeypatch.setattr(realm_train, 'run', again)
  found = warm_start.train(config, 'ict', tmp_path)
  assert found == str(tmp_path / 'ict')
  config.warm_start.needs_mlm = False
  assert warm_start.train(config, 'mlm', tmp_path) == ''
  # Such a model has no encoder, but a retriever to evaluate.
  config.evaluate.questions = ()
  realm_evaluate.run(config, str(tmp_path / 'ict'))
  found = json.loads((tmp_path / 'ict' / 'evaluation.json').read_text())
  assert found == {'step': 4}
  trained = trained_lib.load_realm(tmp_path / 'ict', str(data))
  with pytest.raises(ValueError, match='has no encoder'):
    explain.explain(trained, None, 'The [MASK].')


@pytest.mark.parametrize(
  ('name', 'changed'),
  [
    ('salient', {'masker': 'salient'}),
    ('uniform', {'masker': 'uniform'}),
    ('span', {'masker': 'span'}),
    ('stale', {'refresh': {'staleness': 30}}),
    ('realm_retriever', {'masker': 'salient'}),
  ],
)
def test_rows_change_the_config(
  data, tmp_path, run, monkeypatch, name, changed
):
  """Everything but training: which run a row would make, and where."""
  made = []

  monkeypatch.setattr(realm_train, 'run', lambda *x: made.append(x))
  index = types.SimpleNamespace()
  trained = types.SimpleNamespace(
    open_index=lambda folder='', progress=None: index
  )
  monkeypatch.setattr(trained_lib, 'load_realm', lambda *_: trained)
  monkeypatch.setattr(realm_table2, '_write_recall', lambda *_: None)
  config = tiny_trained.get_config(data)
  config.optimizer.accumulate_steps = 2
  config.optimizer.part_scales = {'encoder': 0.5}
  run(tmp_path, [name], config=config)
  *starts, (realm, folder) = made
  assert folder == str(tmp_path / realm_table2.SYSTEMS[name].retriever)
  for start, part, (warm, warm_folder) in zip(
    ('ict', 'mlm'), ('embedder', 'encoder'), starts, strict=True
  ):
    assert warm_folder == realm[f'{part}_from'] == str(tmp_path / start)
    settings = config.warm_start[start]
    assert warm.num_steps == settings.num_steps
    assert warm.batch_size == settings.batch_size
    assert warm.optimizer.learning_rate == settings.learning_rate
    assert warm.optimizer.accumulate_steps == 1
    assert not warm.optimizer.part_scales
  assert realm.optimizer.part_scales
  for key, value in changed.items():
    found = realm[key]
    if isinstance(value, dict):
      ((field, value),) = value.items()
      found = found[field]
    assert found == value
  assert realm.num_steps == config.num_steps
  assert realm.optimizer.learning_rate == config.optimizer.learning_rate
