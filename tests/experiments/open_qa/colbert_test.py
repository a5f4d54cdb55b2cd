# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny ColBERT: it learns and retrieves."""

import jax
import numpy as np
import pytest

from configs import colbert_small
from experiments.engine import configs, loop, metric_writer
from experiments.open_qa import config as config_lib, contrast_tasks
from realm_jax.data import folder as realm_data
from realm_jax.trained import beams
from retrieval.nn import colbert, trained_encoders
from retrieval.questions import question_files
from retrieval.search import late_interaction
from tests.experiments.open_qa import tiny_open_qa, tiny_places

_NAMES = 'abcefghijklmnopr'  # q and d mark queries and passages
_ONE = jax.devices()[:1]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  tiny_places.make(root, _NAMES)
  return realm_data.DataFolder(root)


def _config(data, **fields):
  c = colbert_small.get_config('test')
  c.data_dir = str(data.root)
  spec = f'custom:train={data.root / "questions.jsonl"}'
  c.questions.update(train=(spec,), dev=(spec,))
  c.questions.allow_other_counts = True
  c.embedder.update(num_layers=1, d_model=16, d_ff=32, max_length=32)
  c.embedder.dropout_rate = 0.02
  c.embedder.update(initializer_range=0.3)
  c.blocks.max_length = 32
  c.colbert.update(vector_size=8, query_length=16, passage_length=32)
  c.colbert.update(query_marker='q', passage_marker='d')
  c.optimizer.learning_rate = 2e-2
  c.update(num_steps=15, eval_every=15, checkpoint_every=10, log_every=3)
  return configs.replaced(configs.build(config_lib.ColbertConfig, c), **fields)


def _searching(data, model, **fields):
  """A reader's config whose blocks a ColBERT finds or orders."""
  config = tiny_open_qa.get_config(
    data.root, retriever='colbert', **{'blocks.max_length': 32}
  )
  index = late_interaction.ColbertConfig(model=str(model))
  return configs.replaced(config, colbert_index=index, **fields)


def _train(config, data, workdir):
  config = contrast_tasks.with_sizes(config, data.tokenizer.vocab_size)
  task = contrast_tasks.make_colbert_task(config, data)
  return loop.train(task, config, str(workdir), devices=_ONE)


@pytest.fixture(scope='module')
def run(data, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  _train(_config(data), data, workdir)
  data.tokenizer.save(workdir / trained_encoders.TOKENIZER)
  return workdir


def test_a_run_learns(run):
  rows = metric_writer.read(run)
  losses = [row['loss'] for row in rows if 'loss' in row]
  assert losses[-1] < 0.7 * losses[0]
  ranks = [row['valid/mean_rank'] for row in rows if 'valid/mean_rank' in row]
  assert 1 <= ranks[-1] < 0.3 * 16


def test_a_trained_model_retrieves_and_reranks(run, data):
  config = _searching(data, run)
  calls = []
  retrieve = beams.make_retriever(
    config, data, None, lambda *done: calls.append(done)
  )
  count = data.blocks.num_blocks
  assert calls[-1] == (count, count)
  asked = question_files.read_questions(data.root / 'questions.jsonl')
  texts = [question.question for question in asked]
  beam = retrieve({}, {}, [*texts, ''], 3)
  assert (beam.ids[-1] == -1).all()
  titles = [f'Mill {name}' for name in _NAMES]
  found = [data.blocks.titles(ids) for ids in beam.ids[:-1]]
  right = [t in x for t, x in zip(titles, found, strict=True)]
  assert np.mean(right) > 0.8
  # Of the texts, without the loss of compression.
  encoder = colbert.load(run)
  passages = [
    [f'{t}\n{x}' for t, x in zip(*pair, strict=True)]
    for pair in (
      (data.blocks.titles(ids), data.blocks.texts(ids)) for ids in beam.ids[:-1]
    )
  ]
  scores = np.stack(encoder.score(texts, passages))
  np.testing.assert_allclose(scores, beam.fields['beam_scores'][:-1], rtol=0.1)
  # Blocks found by words, in the order of the index's scores.
  fields = {'retriever': 'bm25', 'reranker.path': str(run)}
  config = _searching(data, run, **fields)
  reranked = beams.make_retriever(config, data, None)({}, {}, texts, 3)
  assert np.mean(reranked.ids[:, 0] == beam.ids[:-1, 0]) > 0.8
  scores = beam.fields['beam_scores'][:-1, 0]
  same = reranked.ids[:, 0] == beam.ids[:-1, 0]
  np.testing.assert_allclose(reranked.scores[same, 0], scores[same], rtol=1e-5)
  # What is built is opened again.
  calls.clear()
  beams.make_retriever(
    _searching(data, run), data, None, lambda *done: calls.append(done)
  )
  assert not calls


def test_settings_that_do_not_fit_are_named(run, data):
  with pytest.raises(FileNotFoundError):
    colbert.load(data.root)
  config = _config(data, **{'colbert.passage_length': 40})
  config = contrast_tasks.with_sizes(config, data.tokenizer.vocab_size)
  with pytest.raises(ValueError, match='rows of 40 tokens, expected at most'):
    contrast_tasks.make_colbert_task(config, data)
