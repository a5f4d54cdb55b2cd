# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: repeats, resumes, runs on many devices; evaluated and scored."""

import json
import shutil

import jax
import numpy as np
import pytest

from configs import open_qa_small
from experiments.engine import checkpoint_writer, configs, rooms
from experiments.open_qa import evaluate as evaluators, task as qa_task
from realm_jax.trained import block_reader, loading
from retrieval.questions import question_sets
from tests.experiments.open_qa import tiny_open_qa

_ONE = jax.devices()[:1]
_SHORT = {'num_steps': 3, 'eval_batches': 0}


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_open_qa.make_data(tmp_path_factory.mktemp('qa') / 'data')


@pytest.fixture(scope='module')
def run(data, tmp_path_factory):
  """Four steps on one device, with the questions' embedder apart."""
  workdir = tmp_path_factory.mktemp('run')
  fields = {'model.share_embedders': False}
  config = tiny_open_qa.get_config(data, **fields)
  state, metrics = tiny_open_qa.train(config, workdir)
  return config, workdir, state, metrics


@pytest.fixture(scope='module')
def start(run):
  """Parameters as training began."""
  config, *_ = run
  data = tiny_open_qa.tiny_realm.data_of(config)
  return tiny_open_qa.reader_of(config, data).params


def _same(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def test_losses_are_reported_and_only_the_questions_side_learns(run, start):
  _, _, state, metrics = run
  steps = [row for row in metrics if 'early_loss' in row]
  assert all(row['beam_has_answer'] == 1 for row in steps)
  assert all(0 < row['retrieval_sec'] for row in steps)
  assert {'valid/loss', 'valid/exact_match'} <= set().union(*metrics)
  _same(state.params['block_embedder'], start['block_embedder'])
  for part in ('query_embedder', 'reader'):
    before = jax.tree.leaves(start[part])
    after = jax.tree.leaves(state.params[part])
    assert any((a != b).any() for a, b in zip(before, after, strict=True))


def test_run_continues_from_its_checkpoint_bit_for_bit(run, tmp_path):
  config, workdir, state, _ = run
  folder = tmp_path / 'again'
  shutil.copytree(workdir, folder)
  shutil.rmtree(folder / 'checkpoints' / '4')
  again, _ = tiny_open_qa.train(config, folder)
  _same(again.params, state.params)
  _same(again.opt_state, state.opt_state)


def test_eight_devices_equal_one_with_a_batch_that_they_do_not_divide(
  run, tmp_path, monkeypatch
):
  config, _, _, metrics = run

  def stop(*unused):
    raise KeyboardInterrupt

  monkeypatch.setattr(checkpoint_writer.Checkpoints, 'save', stop)
  with pytest.raises(KeyboardInterrupt):  # two steps are enough
    tiny_open_qa.train(config, tmp_path, jax.devices())
  lines = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  eight = [row for row in map(json.loads, lines) if 'grad_norm' in row]
  one = [row for row in metrics if 'grad_norm' in row]
  assert len(eight) == 2
  for a, b in zip(one[:2], eight, strict=True):
    for name in ('loss', 'early_loss', 'full_loss', 'grad_norm'):
      assert a[name] == pytest.approx(b[name], rel=2e-4), name


def test_blocks_side_learns_and_the_index_follows(data, start, tmp_path):
  fields = {'model.share_embedders': False, 'checkpoint_every': 3}
  config = tiny_open_qa.get_config(data, 'blocks_test', **_SHORT | fields)
  state, metrics = tiny_open_qa.train(config, tmp_path)
  before = jax.tree.leaves(start['block_embedder'])
  after = jax.tree.leaves(state.params['block_embedder'])
  assert any((a != b).any() for a, b in zip(before, after, strict=True))
  ages = [row['index_age_steps'] for row in metrics if 'index_age_steps' in row]
  assert ages == [0, 1, 0]


@pytest.mark.parametrize(
  'retriever', ['bm25', pytest.param('weighted', marks=pytest.mark.slow)]
)
def test_reader_alone(data, tmp_path, retriever):
  fields = {'lookup.title_length': 2, 'reader.null_answer': True}
  fields |= _SHORT | {'retriever': retriever}
  config = tiny_open_qa.get_config(data, 'bm25_test', **fields)
  state, metrics = tiny_open_qa.train(config, tmp_path)
  start = tiny_open_qa.reader_of(
    config, tiny_open_qa.tiny_realm.data_of(config)
  )
  _same(state.params['embedder'], start.params['embedder'])
  assert any(row.get('full_loss', 0) > 0 for row in metrics)


def test_evaluation_and_its_predictions_agree(run, tmp_path, monkeypatch):
  config, workdir, _, _ = run
  monkeypatch.setattr(jax, 'local_devices', lambda: _ONE)
  folder = tmp_path / 'run'
  shutil.copytree(workdir, folder)
  sets = tiny_open_qa.sets(config.data_dir)
  wanted = evaluators.Evaluate(questions=sets, batch_size=8, calibrate=True)
  evaluators.evaluate(config, str(folder), wanted)
  result = json.loads((folder / evaluators.FILE).read_text())
  strings, patterns = result['rows']
  assert (strings['questions'], patterns['questions']) == (6, 2)
  assert 0 <= strings['top_5_substring']['mean'] <= 1
  assert strings['top_12_dpr']['mean'] == 1
  assert patterns['top_12_regex']['mean'] == 1
  # What is right by position is right by its text.
  assert (
    strings['exact_match']['mean'] <= strings['official_exact_match']['mean']
  )
  assert strings['exact_match']['mean'] <= strings['reader_oracle']['mean']
  lines = (folder / 'predictions_custom_test.jsonl').read_text().splitlines()
  blocks = tiny_open_qa.tiny_realm.data_of(config).blocks
  for row in map(json.loads, lines):
    assert blocks.names([row['block']]) == [row['passage']]
  questions = question_sets.load(sets[0])
  scores = [
    questions.score(row['prediction'], questions.by_id[row['id']])
    for row in map(json.loads, lines)
  ]
  assert np.mean([x['f1'] for x in scores]) == pytest.approx(
    strings['f1']['mean']
  )
  assert np.mean([x['contains'] for x in scores]) == strings['contains']['mean']
  _check_calibration(loading.load(folder), result, questions)


def _check_calibration(reader, result, questions):
  """Answers have probabilities; eight questions prove no risk below 1."""
  [asked] = (q.question for q in questions.questions[:1])
  [found] = reader.answer(asked)
  made = found.calibration
  assert made.sets == [row['dataset'] for row in result['rows']]
  assert (
    made.made_of == reader.made_of() and not made.made_of['coverage_weight']
  )
  assert len(made.right) == 8 and found.confidence == pytest.approx(
    made.confidences[0], abs=1e-4
  )
  assert 0 < found.probability < 1 and found.text
  [silent] = reader.answer(asked, risk=0.2)
  assert silent.text == '' and silent.threshold == np.inf
  reader = reader.with_retriever(reader_beam=2)
  assert reader.answer(asked)[0].probability is None
  with pytest.raises(ValueError, match='risk=0.2.*reader_beam'):
    reader.answer(asked, risk=0.2)


def test_batches_and_beams_do_not_change_the_answer(run):
  config, workdir, _, _ = run
  trained = loading.load(workdir, part='reader')
  retriever = trained.open_retriever()
  sets = tiny_open_qa.sets(config.data_dir)
  questions = question_sets.load(sets[0]).questions
  found = [
    list(block_reader.Answerer(trained, retriever, batch_size=size)(questions))
    for size in (1, 4)
  ]
  for one, other in zip(*found, strict=True):
    assert [a.text for a in one.answers] == [a.text for a in other.answers]
    np.testing.assert_array_equal(one.beam, other.beam)
    block, (start, limit) = one.answers[0].highlight
    assert block[start:limit] == one.text


def test_scales_are_of_the_embedders_that_the_model_has():
  for arg, fields, wanted in (
    ('base', {}, {'embedder': 0.05}),
    (
      'base',
      {'model.share_embedders': False},
      {'query_embedder': 0.05, 'block_embedder': 0.0},
    ),
    (
      'blocks',
      {
        'model.share_embedders': False,
        'scales': {'block_embedder': 0.5},
      },
      {'query_embedder': 0.05, 'block_embedder': 0.5},
    ),
    ('bm25', {}, {'embedder': 0.0}),
    ('base', {'scales': {'query_embedder': 1.0}}, {'embedder': 0.05}),
  ):
    c = open_qa_small.get_config(arg)
    scales = {'embedder': 0.05} | fields.pop('scales', {})
    config = configs.replaced(
      configs.build(rooms.config_class(c.task), c),
      **fields | {'optimizer.part_scales': scales},
    )
    scales = qa_task.freeze(config).optimizer.part_scales
    assert dict(scales) == wanted, (arg, fields)


def test_bad_input_is_refused_in_one_line(data, run, tmp_path):
  _, workdir, _, _ = run
  for fields, message in (
    ({'questions.train': ()}, 'questions.train'),
    ({'questions.dev': ()}, 'questions.dev'),
    ({'refresh.schedule': 'sync'}, 'refresh.schedule'),
    ({'lookup.reader_beam': 13}, 'reader_beam=13'),
    ({'retriever': 'bm25', 'train_blocks': True}, 'retriever=dense'),
  ):
    config = tiny_open_qa.get_config(data, **fields)
    with pytest.raises(ValueError, match=message):
      tiny_open_qa.task(config, tmp_path)
  with pytest.raises(FileNotFoundError, match=tmp_path.name):
    loading.load(tmp_path, part='reader')
