# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The cross-encoder against NumPy: rows of pairs, scores, the loss, and its runs."""

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
  bert,
  bert_checkpoint,
  cross_encoder,
  means,
  sharding,
  trained_encoders,
)
from retrieval.search import rerank
from tests.retrieval.nn import tiny_bert
from tests.retrieval.text import tiny_blocks


def test_scores_are_those_of_a_slow_bert():
  tensors = tiny_bert.make_tensors()
  sizes = dict(zip(bert_checkpoint.FIELDS, tiny_bert.CONFIG.values()))  # noqa: B905
  config = bert.BertConfig(**sizes, layer_norm_eps=1e-5)
  config, params, _ = bert_checkpoint.convert(tensors, config, 'test')
  params.pop('pooler', None)
  model = cross_encoder.CrossEncoder(
    bert.BertConfig(**sizes, layer_norm_eps=1e-5, pooler=False)
  )
  rng = np.random.default_rng(0)
  kernel, bias = rng.standard_normal((tiny_bert.D, 1)), rng.standard_normal(1)
  head = {'kernel': np.float32(kernel), 'bias': np.float32(bias)}
  sep = 3
  ids = rng.integers(4, tiny_bert.V, (3, 8)).astype(np.int32)
  lengths = np.array([8, 6, 5], np.int32)
  ids[:, 3] = sep
  ids[np.arange(3), lengths - 1] = sep
  mask, types = bert.segments(jnp.asarray(ids), jnp.asarray(lengths), sep)
  want_types = [[0] * 4 + [1] * (n - 4) + [0] * (8 - n) for n in lengths]
  assert np.asarray(types).tolist() == want_types
  assert np.asarray(mask).sum(axis=1).tolist() == lengths.tolist()
  found = model.apply({'params': {'bert': params, 'relevance': head}}, jnp.asarray(ids), mask, types)  # fmt: skip
  slow = tiny_bert.Reference(tensors).encode(
    ids, np.asarray(mask), np.array(want_types)
  )
  want = slow[:, 0] @ kernel[:, 0] + bias[0]
  np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize('row_length', [9, 40])
def test_pairs_are_cut_and_each_text_keeps_its_place(tmp_path, row_length):
  folder = tiny_blocks.write_vocabulary(tmp_path)
  tokenizer = tokenization.WordPieceTokenizer(folder)
  layout = cross_encoder.PairLayout(query_length=3, row_length=row_length)
  queries = ['the mill stood in Rome', '']
  passages = [['Paris', 'the crown was in the river in 1066'], ['Paris']]
  found = cross_encoder.pair_rows(tokenizer, layout, queries, passages)
  want = []
  for query, texts in zip(queries, passages, strict=True):
    head = tokenizer.encode(query).ids.tolist()[:3]
    for text in texts:
      tail = tokenizer.encode(text).ids.tolist()[: row_length - len(head) - 3]
      row = [tokenizer.cls_id, *head, tokenizer.sep_id, *tail]
      want.append([*row, tokenizer.sep_id])
  assert found == want and max(map(len, found)) <= row_length


def _loss(scores, valid):
  arrays = jnp.asarray(scores), jnp.asarray(valid)
  return means.values(cross_encoder.localized_contrastive(*arrays))


def _slow_loss(scores, valid):
  values, ranks = [], []
  for row, there in zip(scores, valid, strict=True):
    if there[0] and there[1:].any():
      kept = row[there]
      values.append(np.log(np.exp(kept - kept[0]).sum()))
      ranks.append(1 + (kept[1:] >= kept[0]).sum())
  ranks = np.array(ranks)
  return np.mean(values), {
    'accuracy': (ranks == 1).mean(),
    'mrr': (1 / ranks).mean(),
  }


def test_the_loss_is_that_of_a_slow_loop():
  rng = np.random.default_rng(0)
  scores = rng.standard_normal((5, 4)).astype(np.float32)
  valid = np.ones((5, 4), bool)
  valid[1, 2:] = valid[2, 1:] = valid[3, 0] = False
  scores[4, 2] = scores[4, 0]  # a tie counts as a failure
  found, metrics = _loss(scores, valid)
  want, measures = _slow_loss(scores, valid)
  np.testing.assert_allclose(found, want, rtol=1e-5)
  for name, value in measures.items():
    np.testing.assert_allclose(metrics[name], value, rtol=1e-6)
  gradient = jax.grad(lambda x: _loss(x, valid)[0])
  slope = np.asarray(gradient(jnp.asarray(scores)))
  assert np.isfinite(slope).all() and not slope[~valid].any()
  assert not slope[[2, 3]].any() and (slope[[0, 1, 4], 0] < 0).all()


QUERIES = ['where stood the mill', 'who was in Paris', '']
PASSAGES = [['The mill stood in Rome.', 'Paris'], [], ['', 'the crown', 'x']]


def bert_config(config):
  return bert.BertConfig(**{**config.model, 'pooler': False})


def layout_of(config):
  return cross_encoder.PairLayout(**config.layout)


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
  model_cfg = bert_config(config)
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
  model = cross_encoder.CrossEncoder(bert_config(config))
  layout = layout_of(config)
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
    return cross_encoder.CrossReranker(
      bert_config(config),
      params,
      tokenizer,
      layout_of(config),
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
  with pytest.raises(ValueError, match="task 'retro', expected"):
    rerank.load(tmp_path / 'other')
  save_run(tmp_path / 'changed')
  path = tmp_path / 'changed' / trained_encoders.TOKENIZER / 'vocab.txt'
  path.write_text(path.read_text() + 'more\n')
  tokenization.WordPieceTokenizer(path).save(path.parent)
  with pytest.raises(ValueError, match='but the checkpoint was trained with'):
    rerank.load(tmp_path / 'changed')
