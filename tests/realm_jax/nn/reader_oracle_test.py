# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reader and open-domain question answering equal the Hugging Face port."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.nn import open_qa
from realm_jax.objectives import reader_losses
from retrieval.nn import bert, bert_checkpoint, means
from tests.realm_jax.data import tiny_qa
from tests.realm_jax.nn import oracle

REALM = oracle.config()
C = json.loads((oracle.PATH / 'config.json').read_text())['config']
CONFIG = open_qa.OpenQaConfig(
  realm=REALM,
  span_hidden_size=C['span_hidden_size'],
  max_span_width=C['max_span_width'],
  span_norm_eps=C['reader_layer_norm_eps'],
)
MODEL = open_qa.OpenQa(CONFIG)
W, R = C['max_span_width'], C['reader_beam_size']


_close_gradients = functools.partial(oracle.close_gradients, rounding=2e-6)


def _reader(tensors):
  """Parameters, or gradients, of a SpanReader."""
  rest = {
    k: v
    for k, v in tensors.items()
    if k.startswith('realm.') and '.pooler.' not in k
  }
  _, params, _ = bert_checkpoint.convert(rest, REALM.encoder, 'oracle')
  head = oracle.part(tensors, 'qa_outputs.')
  dense = {
    ours: {
      'kernel': head[f'dense_{theirs}.weight'].T,
      'bias': head[f'dense_{theirs}.bias'],
    }
    for ours, theirs in (
      ('span_projection', 'intermediate'),
      ('span_score', 'output'),
    )
  }
  norm = {
    'scale': head['layer_normalization.weight'],
    'bias': head['layer_normalization.bias'],
  }
  return {'bert': params, 'span_norm': norm, **dense}


def _correct(starts, ends, shape):
  """[n, k] first and last positions, -1 for none, to [n, W, L]."""
  correct = np.zeros(shape, bool)
  for i, k in zip(*np.nonzero(starts >= 0), strict=True):
    correct[i, ends[i, k] - starts[i, k], starts[i, k]] = True
  return correct


def _rows(ids, mask, types, block_mask):
  """A batch of one question from the first rows."""
  rows = {
    'ids': ids.astype(np.int32),
    'mask': mask.astype(bool),
    'types': types.astype(np.int32),
    'block_mask': block_mask.astype(bool),
  }
  return {f'reader_{k}': v[None, :R] for k, v in rows.items()} | {
    'row_valid': np.ones(1, bool),
    'beam_valid': np.ones((1, len(ids)), bool),
    'reader_valid': np.ones((1, R), bool),
  }


def _order(spans):
  """[n, W, L] to [n, spans] as the port has them: width by width."""
  length = spans.shape[-1]
  kept = [spans[:, w, : length - w] for w in range(spans.shape[1])]
  return np.concatenate(kept, axis=1)


@pytest.fixture(scope='module')
def reader():
  arrays = oracle.load('reader')
  x = oracle.part(arrays, 'in/')
  names = ('input_ids', 'attention_mask', 'token_type_ids', 'block_mask')
  batch = _rows(*(x[name] for name in names))
  shape = (R, W, x['input_ids'].shape[1])
  correct = _correct(x['start_positions'][:R], x['end_positions'][:R], shape)
  batch |= {
    'reader_correct': correct[None],
    'beam_has_answer': x['has_answers'][None],
  }
  params = {'reader': _reader(oracle.part(arrays, 'w/'))}
  return arrays, params, jax.tree.map(jnp.asarray, batch)


def test_span_scores(reader):
  arrays, params, batch = reader
  hidden = bert.Bert(REALM.encoder).apply(
    {'params': params['reader']['bert']},
    *(batch[f'reader_{name}'][0] for name in ('ids', 'mask', 'types')),
  )
  oracle.close(hidden.hidden, arrays['out/sequence_output'])
  spans = MODEL.apply({'params': params}, batch, method='read_beam')
  found = _order(np.asarray(spans[0]))
  expected = arrays['out/span_logits_without_relevance']
  inside = expected > -1e30
  assert inside.sum() == 28
  oracle.close(found[inside], expected[inside])
  # The port's spans outside are at the lowest number there is.
  assert (found[~inside] < -9e3).all()
  assert np.isfinite(found).all()
  correct = _order(np.asarray(batch['reader_correct'][0]))
  np.testing.assert_array_equal(correct, arrays['out/reader_correct'])


def test_losses_and_gradients_of_the_reader(reader):
  arrays, params, batch = reader

  @jax.jit
  @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
  def total(params, retriever):
    spans = MODEL.apply({'params': params}, batch, method='read_beam')
    valid = reader_losses.read_blocks(batch)
    scores = reader_losses.add_retriever(valid, retriever, spans)
    early = reader_losses.marginal_loss(
      retriever, batch['beam_valid'], batch['beam_has_answer']
    )
    full = reader_losses.full_loss(batch, scores)
    return (early + full).sum(), (early, full, scores)

  retriever = jnp.asarray(arrays['in/relevance_score'][None])
  (value, (early, full, scores)), grads = total(params, retriever)
  oracle.close(early, arrays['out/retriever_loss'])
  oracle.close(full, arrays['out/reader_loss'])
  oracle.close(value, arrays['out/loss'])
  _close_gradients(grads[0]['reader'], _reader(oracle.part(arrays, 'grad/')))
  _close_gradients(grads[1][0], arrays['grad_in/relevance_score'])
  best = reader_losses.best_spans(scores)
  assert best.block == arrays['out/block_idx']
  assert best.start == arrays['out/start_pos']
  assert best.start + best.width - 1 == arrays['out/end_pos']


@pytest.fixture(scope='module')
def answered():
  arrays = oracle.load('openqa')
  x = oracle.part(arrays, 'out/')
  special = x['concat_special_tokens_mask'].astype(bool)
  types = x['concat_token_type_ids']
  batch = _rows(
    x['concat_input_ids'],
    x['concat_attention_mask'],
    types,
    ~special & types.astype(bool),
  )
  shape = (R, W, special.shape[1])
  correct = _correct(x['start_positions'][:R], x['end_positions'][:R], shape)
  ids = arrays['in/question_ids'].astype(np.int32)
  batch |= {
    'question_ids': ids,
    'question_mask': np.ones_like(ids, bool),
    'beam_vectors': arrays['w/block_emb'][x['train_retrieved_ids']],
    'reader_correct': correct[None],
    'beam_has_answer': x['has_answers'][None],
  }
  return arrays, _open_qa(arrays, 'w/'), jax.tree.map(jnp.asarray, batch)


def _open_qa(arrays, kind):
  return {
    'embedder': oracle.embedder(oracle.part(arrays, f'{kind}embedder.')),
    'reader': _reader(oracle.part(arrays, f'{kind}reader.')),
  }


def test_fine_tuning_step(answered):
  arrays, params, batch = answered

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def step(params):
    found = reader_losses.loss(MODEL, params, batch, jax.random.key(0), True)
    return means.values(found)

  (value, metrics), grads = step(params)
  oracle.close(value, arrays['out/train_loss'])
  oracle.close(metrics['early_loss'], arrays['out/train_retriever_loss'])
  oracle.close(metrics['full_loss'], arrays['out/train_reader_loss'])
  assert metrics['exact_match'] == 0
  assert metrics['beam_has_answer'] == metrics['reader_has_answer'] == 1
  _close_gradients(grads, _open_qa(arrays, 'grad/'))


def test_answer(answered):
  arrays, params, batch = answered
  variables = {'params': params}

  def retrieve(model):
    ids, mask = (batch[f'question_{x}'] for x in ('ids', 'mask'))
    return model.embed_queries(ids, mask), model.beam_scores(batch)

  apply = jax.jit(functools.partial(MODEL.apply, method=retrieve))
  vector, scores = apply(variables)
  oracle.close(vector, arrays['out/question_projection'])
  oracle.close(scores, arrays['out/train_retrieved_scores'])
  best = reader_losses.best_spans(tiny_qa.span_scores(MODEL, params, batch))
  assert best.block == arrays['out/eval_block_idx']
  assert best.start == arrays['out/eval_start_pos']
  last = best.start + best.width
  assert last - 1 == arrays['out/eval_end_pos']
  row = batch['reader_ids'][0, best.block[0, 0]]
  np.testing.assert_array_equal(
    row[best.start[0, 0] : last[0, 0]], arrays['out/eval_predicted_answer_ids']
  )
