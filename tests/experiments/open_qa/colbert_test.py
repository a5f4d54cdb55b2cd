# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny ColBERT: it learns, continues bit for bit, and retrieves."""

import json
import shutil

import jax
import numpy as np
import pytest

from configs import colbert_small
from experiments.engine import loop, metric_writer
from experiments.open_qa import colbert_task
from realm_jax.data import folder as realm_data
from realm_jax.serving import beams
from retrieval.nn import colbert_encoder, trained_encoders
from retrieval.questions import questions as questions_lib
from retrieval.search import late_interaction, rerank
from tests.retrieval.text import tiny_blocks

_NAMES = 'abcefghijklmnopr'  # q and d mark queries and passages
_ONE = jax.devices()[:1]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Sixteen places, each with a year of its own and a text without one."""
  root = tmp_path_factory.mktemp('data')
  documents, rows = [], []
  for i, name in enumerate(_NAMES):
    year = 1100 + 7 * i
    for title, text in (
      (f'Mill {name}', f'The mill of {name} {name} {name} stood in {year}.'),
      (f'Crown {name}', f'The crown of {name} {name} {name} was in the river.'),
    ):
      documents.append({'id': title, 'title': title, 'text': text})
    question = f'when stood {name} {name} {name}'
    rows.append({'id': f'{i}', 'question': question, 'answer': [str(year)]})
  tiny_blocks.make(root, np.random.default_rng(0), given=documents)
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  (root / 'questions.jsonl').write_text(lines)
  return realm_data.DataFolder(root)


def _config(data, **fields):
  config = colbert_small.get_config('test')
  config.data_dir = str(data.root)
  spec = f'custom:train={data.root / "questions.jsonl"}'
  config.questions.update(train=(spec,), dev=(spec,))
  config.questions.allow_other_counts = True
  config.embedder.update(
    num_layers=1,
    d_model=16,
    d_ff=32,
    max_length=32,
    dropout_rate=0.02,
    attention_dropout_rate=0.0,
    initializer_range=0.3,
  )
  config.blocks.max_length = 32
  config.colbert.update(
    vector_size=8,
    query_length=16,
    passage_length=32,
    query_marker='q',
    passage_marker='d',
  )
  config.colbert_index.update(num_centroids=16, shard_blocks=20)
  config.optimizer.learning_rate = 2e-2
  config.update(num_steps=15, eval_every=15, checkpoint_every=10, log_every=3)
  config.update_from_flattened_dict(fields)
  return config


def _train(config, data, workdir):
  config = colbert_task.with_sizes(config, data.tokenizer.vocab_size)
  task = colbert_task.make_task(config, data)
  return loop.train(task, config, str(workdir), devices=_ONE)


@pytest.fixture(scope='module')
def run(data, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  state = _train(_config(data), data, workdir)
  data.tokenizer.save(workdir / trained_encoders.TOKENIZER)
  return workdir, state


def test_a_run_learns(run):
  rows = metric_writer.read(run[0])
  losses = [row['loss'] for row in rows if 'loss' in row]
  assert losses[-1] < 0.7 * losses[0]
  ranks = [row['valid/mean_rank'] for row in rows if 'valid/mean_rank' in row]
  assert 1 <= ranks[-1] < 0.3 * 16


def test_a_run_continues_bit_for_bit(run, data, tmp_path):
  workdir, state = run
  shutil.copytree(workdir, tmp_path / 'again')
  shutil.rmtree(tmp_path / 'again' / 'checkpoints' / '15')
  again = _train(_config(data), data, tmp_path / 'again')
  jax.tree.map(np.testing.assert_array_equal, again.params, state.params)


def test_a_run_is_loaded_as_a_reranker(run):
  found = rerank.load(run[0])
  assert isinstance(found, colbert_encoder.ColbertEncoder)
  assert isinstance(found, rerank.TextScorer)
  assert found.fingerprint == colbert_encoder.load(run[0]).fingerprint


def test_a_trained_model_retrieves_and_reranks(run, data, monkeypatch):
  load = colbert_encoder.load
  monkeypatch.setattr(
    colbert_encoder, 'load', lambda path: load(path, devices=_ONE)
  )
  config = _config(data, **{'colbert_index.model': str(run[0])})
  config.retriever = 'colbert'
  calls = []
  retrieve = beams.make_retriever(
    config, data, None, lambda *done: calls.append(done)
  )
  count = data.blocks.num_blocks
  assert calls[-1] == (count, count)
  asked = questions_lib.read_questions(data.root / 'questions.jsonl')
  texts = [question.question for question in asked]
  beam = retrieve({}, {}, [*texts, ''], 3)
  assert (beam.ids[-1] == -1).all()
  titles = [f'Mill {name}' for name in _NAMES]
  found = [data.blocks.titles(ids) for ids in beam.ids[:-1]]
  right = [t in x for t, x in zip(titles, found, strict=True)]
  assert np.mean(right) > 0.8
  # Of the texts, without the loss of compression.
  encoder = colbert_encoder.load(run[0])
  passages = [
    [f'{t}\n{x}' for t, x in zip(*pair, strict=True)]
    for pair in (
      (data.blocks.titles(ids), data.blocks.texts(ids)) for ids in beam.ids[:-1]
    )
  ]
  scores = np.stack(encoder.score(texts, passages))
  np.testing.assert_allclose(scores, beam.fields['beam_scores'][:-1], rtol=0.1)
  # Blocks found by words, in the order of the index's scores.
  config.retriever, config.reranker.path = 'bm25', str(run[0])
  reranked = beams.make_retriever(config, data, None)({}, {}, texts, 3)
  assert np.mean(reranked.ids[:, 0] == beam.ids[:-1, 0]) > 0.8
  scores = beam.fields['beam_scores'][:-1, 0]
  same = reranked.ids[:, 0] == beam.ids[:-1, 0]
  np.testing.assert_allclose(reranked.scores[same, 0], scores[same], rtol=1e-5)
  # What is built is opened again.
  calls.clear()
  again = beams.text_indices_of(config, data).tokens(
    progress=lambda *x: calls.append(x)
  )
  assert not calls and isinstance(again, late_interaction.LateInteraction)


def test_the_full_size():
  try:
    config = colbert_task.with_sizes(colbert_small.get_config(), 30522)
  except FileNotFoundError as e:
    pytest.skip(f'The packaged BERT is not installed: {e}')
  cfg, model = colbert_task._models(config)
  assert (cfg.vector_size, cfg.query_length) == (128, 32)
  ids = jax.ShapeDtypeStruct((1, cfg.passage_length), np.int32)
  mask = jax.ShapeDtypeStruct(ids.shape, bool)
  shapes = jax.eval_shape(model.init, jax.random.key(0), ids, mask)['params']
  assert (
    {*shapes} == {'bert', 'linear'} == {'bert', *config.optimizer.part_scales}
  )
  [kernel] = jax.tree.leaves(shapes['linear'])
  assert kernel.shape == (384, 128)


def test_settings_that_do_not_fit_are_named(run, data):
  with pytest.raises(FileNotFoundError):
    colbert_encoder.load(data.root)
  config = _config(data, **{'colbert.passage_length': 40})
  config = colbert_task.with_sizes(config, data.tokenizer.vocab_size)
  with pytest.raises(ValueError, match='rows of 40 tokens, expected at most'):
    colbert_task.make_task(config, data)
