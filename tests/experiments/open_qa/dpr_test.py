# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of questions: what is found, kept and refused; a tiny retriever."""

import types

import jax
import numpy as np
import pytest

from configs import dpr_small
from experiments.engine import configs, loop, metric_writer
from experiments.open_qa import config as config_lib, dpr_task
from realm_jax.data import folder as realm_data
from retrieval.index import text_index
from retrieval.nn import sharding
from retrieval.questions import question_files
from retrieval.store import checkpoints
from tests.experiments.open_qa import tiny_places
from tests.experiments.realm import tiny_realm
from tests.retrieval.questions import answers_test


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  other = {'id': 'none', 'question': 'the mill', 'answer': ['Rome 1']}
  made = tiny_places.make(root, 'abcdefghijklmnop', [other], max_length=32)
  made.questions = question_files.read_questions(root / 'questions.jsonl')
  return made


def _spec(data):
  return f'custom:train={data.root / "questions.jsonl"}'


def _retriever(data):
  return text_index.TextIndices(data.root, data.blocks).words('bm25')


def _config(data, **fields):
  c = dpr_small.get_config('test')
  tiny_realm.tiny(c, data.root)
  c.questions.train = (_spec(data),)
  c.embedder.initializer_range = 0.3
  c.model.projection_norm_scale = 1.0
  c.optimizer.learning_rate = 1e-2
  c.dpr.depth = 100
  c.valid_fraction = 0.3
  c.batch_size = 8
  c.num_steps = 20
  c.checkpoint_every = 20
  c.eval_every = 20
  c.log_every = 4
  # BERT's Adam, as of longer runs
  c.optimizer.name, c.optimizer.b2 = 'bert_adam', 0.999
  return configs.replaced(configs.build(config_lib.DprConfig, c), **fields)


def _mine(data, folder, retriever=None, questions=None, **fields):
  return dpr_task.mine(
    folder,
    data.questions if questions is None else questions,
    data.blocks,
    retriever or _retriever(data),
    **{'depth': 100, 'num_hard_negatives': 1} | fields,
  )


def test_positives_hold_answers_and_negatives_do_not(data, tmp_path):
  found = _mine(data, tmp_path, num_hard_negatives=3)
  assert [q.id for q in found.questions] == [
    q.id for q in data.questions if q.id != 'none'
  ]
  retriever = _retriever(data)
  for question, positive, negatives in zip(
    found.questions, found.positives, found.negatives, strict=True
  ):
    [ids], _ = retriever.search([question.question], 100)
    ids = ids[ids >= 0].tolist()
    right = answers_test.has_answer(
      data.blocks.texts(ids), question.answers, 'dpr'
    )
    assert positive == next(i for i, x in zip(ids, right, strict=True) if x)
    wrong = [i for i, x in zip(ids, right, strict=True) if not x][:3]
    assert wrong and negatives[negatives >= 0].tolist() == wrong


def test_what_is_found_is_found_once(data, tmp_path, monkeypatch):
  monkeypatch.setattr(dpr_task, 'SHARD', 5)
  calls = []

  def retriever(dies_after):
    index = _retriever(data)

    def search(texts, k):
      if len(calls) == dies_after:
        raise KeyboardInterrupt
      calls.append(len(texts))
      return index.search(texts, k)

    return types.SimpleNamespace(
      fingerprint=index.fingerprint, unit=index.unit, search=search
    )

  with pytest.raises(KeyboardInterrupt):
    _mine(data, tmp_path / 'killed', retriever(2))
  found = _mine(data, tmp_path / 'killed', retriever(9))
  assert calls == [5, 5, 5, 2]
  again = _mine(data, tmp_path / 'killed', retriever(0))
  whole = _mine(data, tmp_path / 'whole')
  for other in (again, whole):
    assert other.fingerprint == found.fingerprint
    np.testing.assert_array_equal(other.positives, found.positives)
    np.testing.assert_array_equal(other.negatives, found.negatives)
  deeper = _mine(data, tmp_path / 'killed', depth=50)
  fewer = _mine(data, tmp_path / 'killed', questions=data.questions[1:])
  prints = {x.fingerprint for x in (found, deeper, fewer)}
  assert len(prints) == 3


def test_a_batch_of_one_row_has_no_negatives(data):
  fields = {'batch_size': 1, 'dpr.num_hard_negatives': 0}
  folder = realm_data.DataFolder(data.root)
  with pytest.raises(ValueError, match='batch_size 1'):
    dpr_task.make_task(_config(data, **fields), folder)
  fields['dpr.num_hard_negatives'] = 1
  dpr_task.make_task(_config(data, **fields), folder)


def test_held_out_questions(data):
  folder = realm_data.DataFolder(data.root)
  splits = dpr_task.make_splits(_config(data), folder)
  parts = [
    {examples.questions[i].id for i in rows.numbers}
    for examples, rows in (splits['train'], splits['valid'])
  ]
  assert all(parts) and not parts[0] & parts[1] and len(set.union(*parts)) == 16
  config = _config(data, **{'questions.dev': (_spec(data),)})
  splits = dpr_task.make_splits(config, folder)
  assert [len(splits[x][1]) for x in ('train', 'valid')] == [16, 16]


def test_a_run_learns_and_starts_another(data, tmp_path):
  config = _config(data, **{'questions.dev': (_spec(data),)})
  folder = realm_data.DataFolder(data.root)
  task = dpr_task.make_task(config, folder)
  # One device: eight virtual ones of one machine only wait for each other.
  loop.train(task, config, str(tmp_path), devices=jax.devices()[:1])
  rows = metric_writer.read(tmp_path)
  losses = [row['loss'] for row in rows if 'loss' in row]
  assert losses[-1] < 0.6 * losses[0]
  ranks = [row['valid/mean_rank'] for row in rows if 'valid/mean_rank' in row]
  assert 1 <= ranks[-1] < 0.5 * 16
  params, _ = checkpoints.load_params(str(tmp_path))
  assert {*params} == {'embedder'}
  # One embedder starts two.
  fields = {'embedder_from': str(tmp_path), 'model.share_embedders': False}
  config = configs.replaced(config, **fields)
  task = dpr_task.make_task(config, folder)
  started = sharding.unbox(task.init(jax.random.key(9)))
  assert {*started} == {'query_embedder', 'block_embedder'}
  for embedder in started.values():
    jax.tree.map(np.testing.assert_array_equal, embedder, params['embedder'])
