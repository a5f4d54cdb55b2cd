# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Table 1: what each row trains and starts from, one row whole, and the print."""

import functools
import json
import types

import jax
import pytest

from configs import realm_pretrain_small
from experiments.engine import loop
from experiments.open_qa import (
  score,
  starts,
  task as qa_task,
  train as qa_train,
)
from experiments.realm import (
  prepare as realm_prepare,
  task as realm_task,
  train as realm_train,
  warm_start,
)
from experiments.tables import realm_systems, realm_table1
from realm_jax.data import folder as realm_data
from retrieval.questions import question_sets
from retrieval.store import checkpoint_steps, checkpoints
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm

pytestmark = pytest.mark.usefixtures('fast')


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_open_qa.make_data(tmp_path_factory.mktemp('table1') / 'data')


@pytest.fixture
def command_flags(monkeypatch, data):
  """Sets what the command's own flags hold."""

  def set_flags(row=(), dataset=(), needs_mlm=True):
    realm = tiny_realm.get_config(data)
    # The data are those of --config, whatever is said here.
    realm.data_dir, realm.blocks.max_length = '', 7
    realm.warm_start.needs_mlm = needs_mlm
    parsed = types.SimpleNamespace(
      row=list(row), dataset=list(dataset), realm_config=realm
    )
    found = types.SimpleNamespace(FLAGS=parsed)
    monkeypatch.setattr(realm_table1, 'flags', found)

  return set_flags


def _specs(data):
  return (
    f'custom:test={data}/questions.jsonl',
    f'curatedtrec:test={data}/patterns.tsv',
  )


def _config(data, **fields):
  return tiny_open_qa.get_config(data, **{'eval_batches': 0} | fields)


@pytest.mark.parametrize(
  ('name', 'trained', 'starts', 'retriever'),
  [
    ('bm25', ['mlm'], ('', 'mlm'), 'bm25'),
    ('drqa', ['mlm'], ('', 'mlm'), 'tfidf'),
    ('random', ['mlm'], ('', 'mlm'), 'random'),
    ('start', ['mlm'], ('', 'mlm'), 'dense'),
    ('orqa', ['ict', 'mlm'], ('ict', 'mlm'), 'dense'),
    ('dpr', ['dpr', 'mlm'], ('dpr', 'mlm'), 'dense'),
    ('realm', ['ict', 'mlm', 'salient'], ('salient', 'salient'), 'dense'),
  ],
)
def test_what_rows_train(
  data, tmp_path, command_flags, monkeypatch, name, trained, starts, retriever
):
  """Everything but training: which runs a row makes, where, by which config."""
  made, prepared = {}, []

  def run(config, folder):
    made[folder.removeprefix(f'{tmp_path}/')] = config

  for module in (realm_train, qa_train):
    monkeypatch.setattr(module, 'run', run)
  monkeypatch.setattr(
    warm_start, 'is_done', lambda folder, _: folder.split('/')[-1] in made
  )
  monkeypatch.setattr(
    realm_prepare, 'run', lambda config, _: prepared.append(config)
  )
  monkeypatch.setattr(realm_systems, 'measure', lambda *_: None)
  command_flags([name], _specs(data))
  config = _config(data)
  config.data_dir = ''
  realm_table1.run(config, str(tmp_path))
  system = realm_table1.SYSTEMS[name]
  assert list(made) == [*trained, f'qa/{system.name}']
  *pretrained, fine = made.values()
  for one in (*pretrained, fine, *prepared):
    assert one.data_dir == str(tmp_path / 'data')
    assert one.blocks.max_length == config.blocks.max_length
  found = (fine.embedder_from, fine.encoder_from)
  assert found == tuple(str(tmp_path / x) if x else '' for x in starts)
  assert fine.retriever == retriever and fine.num_steps == config.num_steps
  wanted = 'all' if name == 'realm' else 'tokenizer,tokens,blocks'
  assert [one.prepare.stages for one in prepared] == [wanted]
  if name == 'realm':
    assert made['salient'].masker == 'salient'
  if name == 'dpr':
    assert made['dpr'].num_steps == config.warm_start.dpr.num_steps
    assert made['dpr'].questions == config.questions


@pytest.mark.slow
def test_a_row_from_training_to_the_table(
  data, tmp_path, command_flags, monkeypatch, capsys
):
  one = jax.devices()[:1]
  train = functools.partial(loop.train, devices=one)
  monkeypatch.setattr(
    loop, 'train', lambda *a, **k: train(*a, **k | {'devices': one})
  )
  monkeypatch.setattr(realm_task, 'training_devices', lambda _: one)
  monkeypatch.setattr(jax, 'local_devices', lambda: one)
  strings, patterns = _specs(data)
  command_flags(['start'], [strings], needs_mlm=False)
  realm_table1.run(_config(data), str(tmp_path))
  folder = tmp_path / 'qa' / 'start-mlm'
  assert checkpoints.find(str(folder)).step == 4
  assert not (tmp_path / 'mlm').exists()
  measures = json.loads((folder / realm_systems.FILE).read_text())
  assert measures['step'] == 4 and measures['training_questions'] == 6
  ((key, row),) = measures['sets'].items()
  shown = f'{100 * row["official_exact_match"]["mean"]:.1f} ±'
  assert shown in capsys.readouterr().out

  # Scored again, the predictions are what the table says.
  report = score.score(
    folder / 'predictions_custom_test.jsonl', question_sets.load(strings)
  )
  assert report.metrics['f1'].mean == pytest.approx(row['f1']['mean'])

  # Run again, nothing is trained, and only the set that is new is measured.
  def never(*unused):
    raise AssertionError('Trained twice.')

  monkeypatch.setattr(loop, 'train', never)
  asked, evaluate = [], realm_systems.qa_evaluate.evaluate

  def watched(answerer, questions, *rest):
    asked.append(questions.name)
    return evaluate(answerer, questions, *rest)

  monkeypatch.setattr(realm_systems.qa_evaluate, 'evaluate', watched)
  command_flags(['start'], [strings, patterns], needs_mlm=False)
  config = _config(data)
  realm_table1.run(config, str(tmp_path))
  assert asked == ['curatedtrec:test']
  again = json.loads((folder / realm_systems.FILE).read_text())
  assert again['sets'][key] == row and len(again['sets']) == 2

  # With other data, all is measured anew.
  rows = {row['dataset']: row for row in again['sets'].values()}

  def watched_alone(answerer, questions, *rest):
    asked.append(questions.name)
    return rows[questions.name], []

  with monkeypatch.context() as patch:
    patch.setattr(realm_systems.qa_evaluate, 'evaluate', watched_alone)
    patch.setattr(
      realm_data.DataFolder, 'fingerprints', lambda self: {'blocks': 'other'}
    )
    asked.clear()
    for _ in range(2):
      realm_table1.run(config, str(tmp_path))
  assert asked == ['custom:test', 'curatedtrec:test']
  asked.clear()
  (folder / realm_systems.FILE).write_text(json.dumps(again))
  realm_table1.run(config, str(tmp_path))
  assert not asked

  # The table: ours where it was run, the papers' in any case.
  text = (tmp_path / 'table1.md').read_text()
  lines = [x for x in text.splitlines() if x.startswith('|')]
  assert len(lines) == 2 + len(realm_table1.TABLE.rows)
  (start,) = [x for x in lines if '| start |' in x]
  assert shown in start and 'not run' not in start
  (realm,) = [x for x in lines if '| realm |' in x]
  assert realm.count('not run') == 2 and '46.8' in realm
  (t5,) = [x for x in lines if 'T5 (11b)' in x]
  assert 'not run' not in t5
  blocks = f'{again["blocks"]} blocks of at most 32 wordpieces'
  assert blocks in text and 'fine-tuned for 4 steps of 4' in text
  found = json.loads((tmp_path / 'table1.json').read_text())
  ours = {x['ours']: x for x in found['rows'] if x['ours']}
  assert ours['start']['measures'] == again and not ours['orqa']['measures']
  assert ours['orqa']['exact_match'] == {
    'NQ': '33.3',
    'WQ': '36.4',
    'CT': '30.1',
  }

  # Other questions under the same name are another column, not run yet.
  config.evaluate.max_questions = 3
  command_flags([], [strings])
  realm_table1.run(config, str(tmp_path))
  text = (tmp_path / 'table1.md').read_text()
  assert 'custom:test (3)' in text and shown not in text
  command_flags()
  realm_table1.run(config, str(tmp_path))
  text = (tmp_path / 'table1.md').read_text()
  assert 'custom:test (6)' in text and 'curatedtrec:test (2)' in text


def _save_two(folder, config):
  """Checkpoints 2 and 4 of a run whose best one is 2."""
  trained = starts.untrained(config, tiny_realm.data_of(config))
  places = []
  for step in (2, 4):
    run = folder / f'{step}'
    tiny_open_qa.save(run, trained, config, step=step)
    places.append(checkpoint_steps.folder_of(run) / f'{step}')
  whole = checkpoint_steps.folder_of(folder)
  whole.mkdir()
  for place in places:
    place.rename(whole / place.name)
  checkpoint_steps.write_sealed(whole / checkpoint_steps.BEST, {'step': 2})


def test_the_best_checkpoint_is_measured_where_it_is_wanted(
  data, tmp_path, monkeypatch
):
  config = _config(data)
  _save_two(tmp_path, config)
  asked = []

  def evaluate(answerer, questions, *unused):
    asked.append(answerer.step)
    return {'dataset': questions.name, 'questions': 6}, []

  qa = realm_systems.qa_evaluate
  monkeypatch.setattr(qa, 'make_answerer', lambda trained, *_: trained)
  monkeypatch.setattr(qa, 'evaluate', evaluate)
  sets = question_sets.load_sets(_specs(data)[:1])
  for step in ('best', 'best', ''):
    config.evaluate.step = step
    realm_systems.measure(tmp_path, config, sets)
  assert asked == [2, 4]
  assert json.loads((tmp_path / realm_systems.FILE).read_text())['step'] == 4


def test_warm_starts_have_no_best_metric_of_another_task(data):
  config = _config(data, best_metric='valid/exact_match', best_mode='max')
  for name in ('dpr', 'ict', 'mlm'):
    assert not warm_start.make_config(config, name).best_metric


def test_what_a_checkpoint_is_measured_as(data):
  folder = tiny_realm.data_of(_config(data))

  def identity(step=4, **fields):
    saved = checkpoints.Saved(_config(data, **fields), step, {}, {})
    return realm_systems.identity(saved, folder)

  others = {
    identity(),
    identity(step=5),
    identity(**{'retriever': 'bm25'}),
    identity(**{'reader.max_span_width': 3}),
    identity(**{'lookup.reader_beam': 2}),
  }
  assert len(others) == 5 and identity() in others


def test_before_anything_was_run(data, tmp_path, command_flags, capsys):
  command_flags()
  realm_table1.run(_config(data), str(tmp_path))
  printed = capsys.readouterr().out
  assert printed.count('not run') == len(realm_table1.SYSTEMS)
  assert '46.8' in printed and 'Nothing was run yet' in printed


@pytest.mark.parametrize(
  ('row', 'twice', 'message'),
  [
    ('bm26', 1, "--row=bm26: expected one of \\['bm25'"),
    ('bm25', 0, '--row needs a --dataset'),
    ('bm25', 2, 'A set is named twice'),
  ],
)
def test_bad_flags_are_refused(
  data, tmp_path, command_flags, row, twice, message
):
  command_flags([row], [_specs(data)[0]] * twice)
  with pytest.raises(ValueError, match=message):
    realm_table1.run(_config(data), str(tmp_path))


def test_the_default_pretraining_is_there():
  name = realm_pretrain_small.__name__.rpartition('.')[2]
  assert realm_table1.REALM_CONFIG.is_file()
  assert realm_table1.REALM_CONFIG.stem == name


@pytest.mark.parametrize('retriever', realm_systems.WITHOUT_VECTORS)
def test_what_searches_no_vectors_is_not_refreshed(
  data, monkeypatch, tmp_path, retriever
):
  monkeypatch.setattr(realm_systems, 'train', lambda name, *_: name)
  config = tiny_open_qa.get_config(data, 'blocks_test')
  system = realm_systems.System(retriever)
  found = realm_systems.fine_tuning(system, config, config, tmp_path)
  qa_task._check(found)
  assert (found.retriever, found.encoder_from) == (retriever, 'mlm')
