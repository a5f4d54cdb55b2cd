# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of a trained cross-encoder, and how its folder is loaded."""

import json

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from configs import reranking_small
from experiments.engine import checkpoint_writer
from experiments.reranking import task as task_lib
from retrieval import tokenization
from retrieval.nn import (
  cross_encoder,
  cross_reranker,
  sharding,
  trained_encoders,
)
from retrieval.search import rerank
from tests.retrieval.text import tiny_blocks

QUERIES = ['where stood the mill', 'who was in Paris', '']
PASSAGES = [['The mill stood in Rome.', 'Paris'], [], ['', 'the crown', 'x']]


def save_run(folder, **fields):
  """Saves a cross-encoder with drawn parameters as a run."""
  tiny_blocks.write_vocabulary(folder / trained_encoders.TOKENIZER)
  tokenizer = tokenization.WordPieceTokenizer(
    folder / trained_encoders.TOKENIZER
  )
  config = reranking_small.get_config('test')
  config.model.vocab_size = tokenizer.vocab_size
  config.best_metric = ''
  config.update(fields)
  model_cfg = cross_reranker.bert_config(config)
  init = lambda key: task_lib._random(key, model=model_cfg)  # noqa: E731
  shapes = sharding.unbox(jax.eval_shape(init, jax.random.key(0)))
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.standard_normal(x.shape).astype(np.float32), shapes
  )
  checkpoint_writer.save_params(
    str(folder),
    params,
    config=json.loads(config.to_json()),
    fingerprints={trained_encoders.TOKENIZER: tokenizer.fingerprint},
  )
  return params, config, tokenizer


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  return folder, *save_run(folder)


def test_scores_are_those_of_single_pairs(made):
  folder, params, config, tokenizer = made
  reranker = rerank.load(folder)
  assert isinstance(reranker, rerank.TextScorer)
  found = reranker.score(QUERIES, PASSAGES)
  assert [len(row) for row in found] == [2, 0, 3]
  assert all(row.dtype == np.float32 for row in found)
  model = cross_encoder.CrossEncoder(cross_reranker.bert_config(config))
  layout = cross_reranker.pair_layout(config)
  for query, texts, row in zip(QUERIES, PASSAGES, found, strict=True):
    for text, score in zip(texts, row, strict=True):
      [ids] = cross_encoder.pair_rows(tokenizer, layout, [query], [[text]])
      first = ids.index(tokenizer.sep_id) + 1
      types = jnp.asarray([[0] * first + [1] * (len(ids) - first)])
      ids = jnp.asarray([ids])
      want = model.apply({'params': params}, ids, ids >= 0, types)
      np.testing.assert_allclose(score, want[0], rtol=1e-4, atol=1e-4)
  assert reranker.score([], []) == []
  again = reranker.score(QUERIES[::-1], PASSAGES[::-1])[::-1]
  for one, other in zip(found, again, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_the_fingerprint_is_that_of_parameters_and_lengths(made):
  folder, params, config, tokenizer = made

  def make(params, config):
    return cross_reranker.CrossReranker(
      cross_reranker.bert_config(config),
      params,
      tokenizer,
      cross_reranker.pair_layout(config),
    ).fingerprint

  own = rerank.load(folder).fingerprint
  assert own == make(params, config)
  longer = ml_collections.ConfigDict(config)
  longer.layout.query_length += 1
  assert own != make(params, longer)
  assert own != make(jax.tree.map(lambda x: 2 * x, params), config)


def test_other_folders_are_refused(made, tmp_path):
  with pytest.raises(FileNotFoundError):
    rerank.load(tmp_path / 'none')
  save_run(tmp_path / 'other', task='retro')
  with pytest.raises(ValueError, match="task 'retro', expected a re-ranker"):
    rerank.load(tmp_path / 'other')
  save_run(tmp_path / 'changed')
  path = tmp_path / 'changed' / trained_encoders.TOKENIZER / 'vocab.txt'
  path.write_text(path.read_text() + 'more\n')
  tokenization.WordPieceTokenizer(path).save(path.parent)
  with pytest.raises(ValueError, match='but the checkpoint was trained with'):
    rerank.load(tmp_path / 'changed')
