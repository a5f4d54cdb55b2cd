# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A reader learns from questions with given passages, is packed, and answers."""

import json

import jax
import numpy as np
import pytest

from configs import open_qa_reader
from experiments import pack
from experiments.engine import configs, loop, metric_writer
from experiments.open_qa import config as config_lib, task as qa_task
from realm_jax.trained import loading
from retrieval.store import checkpoints
from tests.experiments.open_qa import tiny_open_qa

_TABLE = 'reader/bert/embeddings/word'


@pytest.fixture(scope='module')
def config(tmp_path_factory):
  root = tmp_path_factory.mktemp('reading')
  data = tiny_open_qa.make_data(root / 'data')
  file = root / 'given.jsonl'
  texts = [f'The mill was in {x}. It stood.' for x in tiny_open_qa.WANTED]
  rows = [
    {
      'question': f'Where was mill {i}?',
      'answers': [word] if i else [],
      'ctxs': [{'text': texts[i]}, {'text': texts[i - 1]}],
    }
    for i, word in enumerate(tiny_open_qa.WANTED)
  ]
  file.write_text(''.join(json.dumps(x) + '\n' for x in rows))
  return tiny_open_qa.get_config(
    data,
    'bm25_test',
    **{
      'reading.train': (str(file),),
      'reading.valid': (str(file),),
      'reader.null_answer': True,
      'reader.coverage_weight': 1.0,
      'reading.blocks': 2,
      'optimizer.part_scales': {_TABLE: 0.0},
      'questions.train': (),
      'questions.dev': (),
      'num_steps': 12,
      'eval_every': 12,
    },
  )


@pytest.fixture(scope='module')
def run(config, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  config = qa_task.freeze(config)
  data = tiny_open_qa.tiny_realm.data_of(config)
  task = qa_task.make_reading_task(config, data)
  loop.train(task, config, str(workdir), devices=jax.devices()[:1])
  return workdir


def test_training_learns_and_keeps_retriever_and_table(config, run):
  rows = metric_writer.read(run)
  losses = [x['loss'] for x in rows if 'learning_rate' in x]
  assert np.mean(losses[-4:]) < np.mean(losses[:4])
  assert any('valid/exact_match' in x for x in rows)
  data = tiny_open_qa.tiny_realm.data_of(config)
  before = tiny_open_qa.reader_of(config, data).params
  after, _ = checkpoints.load_params(str(run))
  jax.tree.map(
    np.testing.assert_array_equal, after['embedder'], before['embedder']
  )
  old, new = (x['reader']['bert'] for x in (before, after))
  table = 'embeddings', 'word', 'embedding'
  for name in table:
    old, new = old[name], new[name]
  np.testing.assert_array_equal(old, new)
  assert (
    after['reader']['span_score']['kernel']
    != before['reader']['span_score']['kernel']
  ).any()


def test_a_packed_reader_answers_as_its_run(config, run, tmp_path):
  pack.pack(str(run), str(tmp_path / 'packed'), bits=32)
  asked = 'Where was the mill?'
  answers = [
    loading.load(folder, config.data_dir).answer(asked)[0]
    for folder in (run, tmp_path / 'packed')
  ]
  assert answers[0].text == answers[1].text
  assert answers[0].confidence == pytest.approx(answers[1].confidence, abs=1e-6)


def test_bad_input_is_refused(config, tmp_path):
  for fields, name in (
    ({'reading.valid': ()}, 'reading.valid'),
    ({'reading.train': (str(tmp_path / 'no.jsonl'),)}, 'no.jsonl'),
    ({'batch_size': 99}, 'batch_size'),
  ):
    given = configs.replaced(config, **fields)
    with pytest.raises((ValueError, FileNotFoundError), match=name):
      qa_task.train(given, str(tmp_path / 'run'))


def test_the_config_trains_in_bfloat16_on_whole_batches():
  c = open_qa_reader.get_config('reading')
  c.update(reading={'train': ('a.jsonl',)})
  config = configs.build(config_lib.Config, c)
  assert config.reading.train and config.retriever == 'bm25'
  assert config.encoder.dtype == 'bfloat16'
  assert config.optimizer.accumulate_steps == 1
  assert config.optimizer.part_scales == {_TABLE: 0.0}
  frozen = qa_task.freeze(config).optimizer.part_scales
  assert frozen == {_TABLE: 0.0, 'embedder': 0.0}
  test = configs.build(
    config_lib.Config, open_qa_reader.get_config('reading_test')
  )
  assert test.encoder.dtype == 'float32' and test.num_steps == 4
  assert config.encoder_from == 'packaged' and not test.encoder_from
