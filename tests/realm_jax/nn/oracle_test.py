# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Model, losses and optimizer equal the Hugging Face port of the released code."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.engine import optimizers
from realm_jax.nn import realm as model_lib
from realm_jax.objectives import losses
from retrieval.kernels import backend
from retrieval.nn import bert, objectives
from tests.realm_jax.nn import oracle

CONFIG = oracle.config()
MODEL = model_lib.Realm(CONFIG)


@functools.partial(jax.jit, static_argnames='method')
def _apply(params, *args, method=None):
  return MODEL.apply({'params': params}, *args, method=method)


def test_embedder():
  arrays = oracle.load('embedder')
  params = oracle.embedder(oracle.part(arrays, 'w/'))
  ids, mask, types = (
    arrays[f'in/{name}'].astype(dtype)
    for name, dtype in (
      ('input_ids', np.int32),
      ('attention_mask', bool),
      ('token_type_ids', np.int32),
    )
  )
  out = jax.jit(bert.Bert(CONFIG.embedder_bert).apply)(
    {'params': params['bert']}, ids, mask, types
  )
  oracle.close(out.hidden, arrays['out/sequence_output'])
  oracle.close(out.pooled, arrays['out/pooler_output'])
  vectors = jax.jit(model_lib.Embedder(CONFIG).apply)(
    {'params': params}, ids, mask, types
  )
  oracle.close(vectors, arrays['out/projected_score'])


def test_scorer():
  arrays = oracle.load('scorer')
  params = {'embedder': oracle.embedder(oracle.part(arrays, 'w/embedder.'))}
  batch = oracle.scorer_batch(arrays)
  ids, mask = batch['query_ids'], batch['query_mask']
  queries = _apply(params, ids, mask, method='embed_queries')
  oracle.close(queries, arrays['out/query_score'])
  blocks = [
    batch[f'candidate_{x}'].reshape(12, -1) for x in ('ids', 'mask', 'types')
  ]
  vectors = _apply(params, *blocks, method='embed_blocks').reshape(4, 3, -1)
  oracle.close(vectors, arrays['out/candidate_score'])
  scores = _apply(params, batch, method='relevance_scores')
  oracle.close(scores, arrays['out/relevance_score'])


def test_encoder():
  arrays = oracle.load('encoder')
  params = {'encoder': oracle.encoder(oracle.part(arrays, 'w/'))}
  batch = jax.tree.map(jnp.asarray, oracle.encoder_batch(arrays))
  masks = losses.batch_masks(batch)
  scores = jnp.asarray(arrays['in/relevance_score'])
  logits = _apply(params, batch, method='token_logits')
  positions = arrays['in/mlm_positions'][:, None, :, None]
  everywhere = arrays['out/logits'].reshape(
    4, 3, *arrays['out/logits'].shape[1:]
  )
  oracle.close(logits, np.take_along_axis(everywhere, positions, axis=2))

  def gold(params):
    log_probs = jax.nn.log_softmax(_apply(params, batch, method='token_logits'))
    targets = batch['mlm_targets'][:, None, :, None]
    return jnp.take_along_axis(log_probs, targets, axis=-1)[..., 0]

  g = gold(params)
  counted = np.broadcast_to(batch['mlm_mask'][:, None], g.shape)
  oracle.close(g[counted], arrays['out/gold_log_probs'][counted])
  marginal = losses.token_log_likelihood(scores, g, masks)
  expected = arrays['out/marginal_gold_log_probs'] * batch['mlm_mask']
  oracle.close(marginal, expected)
  span = objectives.marginal_seq(scores, g, masks)
  oracle.close(span.value, arrays['out/loss_paper_joint_span'])
  gain = marginal - objectives.mask_gold(g, masks)[:, 0]
  number = batch['mlm_mask'].sum()
  oracle.close(gain.sum() / number, arrays['out/retrieval_utility'])
  expected = arrays['out/retrieval_utility_per_candidate']
  oracle.close(losses.candidate_utility(g, masks), expected)

  @jax.jit
  @functools.partial(jax.value_and_grad, argnums=(0, 1))
  def token(params, scores):
    return objectives.marginal_token(scores, gold(params), masks).value

  value, (by_params, by_scores) = token(params, scores)
  oracle.close(value, arrays['out/loss'])
  expected = oracle.encoder(oracle.part(arrays, 'grad/'))
  oracle.close_gradients(by_params['encoder'], expected)
  oracle.close_gradients(by_scores, arrays['grad_in/relevance_score'])


@pytest.fixture(scope='module')
def step():
  """Loss and gradients of the whole model, compiled once."""
  return _make_step()


def _make_step():
  def loss(params, batch):
    found = losses.loss(MODEL, params, batch, jax.random.key(0), True)
    return found[0].value

  return jax.jit(jax.value_and_grad(loss))


@pytest.fixture(scope='module')
def arrays():
  return oracle.load('pretrain_step')


def _optimize(step, tx, arrays):
  """Losses and gradient norms of ten steps, and the final parameters."""
  params, batch = oracle.realm(arrays, 'w/'), oracle.batch(arrays)
  state = jax.jit(tx.init)(params)
  update = jax.jit(tx.update)
  values, norms = [], []
  for _ in range(10):
    value, grads = step(params, batch)
    updates, state = update(grads, state, params)
    params = optax.apply_updates(params, updates)
    values.append(float(value))
    norms.append(float(optax.tree.norm(grads)))
  return values, norms, params


def test_pretraining_step(arrays, step):
  params, batch = oracle.realm(arrays, 'w/'), oracle.batch(arrays)
  value, grads = step(params, batch)
  oracle.close(value, arrays['out/loss'])
  oracle.close_gradients(grads, oracle.realm(arrays, 'grad/'))


@pytest.mark.parametrize(
  'kind', ['gpu', pytest.param('tpu', marks=pytest.mark.slow)]
)
def test_pretraining_step_of_accelerators(arrays, kind, monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  monkeypatch.setattr(backend, 'is_tpu', lambda: kind == 'tpu')
  test_pretraining_step(arrays, _make_step())


def test_ten_steps_of_berts_adam(arrays, step):
  config = optimizers.OptimizerConfig(
    name='bert_adam',
    schedule='linear',
    learning_rate=1e-3,
    warmup_steps=4,
    weight_decay=0.01,
    b2=0.999,
    eps=1e-6,
  )
  schedule = optimizers.learning_rate_schedule(config, 20)
  expected = oracle.part(arrays, 'opt/bert_adam/')
  np.testing.assert_allclose(
    [schedule(i) for i in range(10)], expected['lrs'], rtol=1e-6
  )
  tx = optimizers.make_optimizer(config, 20)
  values, norms, params = _optimize(step, tx, arrays)
  np.testing.assert_allclose(values, expected['losses'], rtol=0, atol=2e-5)
  np.testing.assert_allclose(norms, expected['grad_norms'], rtol=1e-4)
  final = oracle.realm(arrays, 'opt/bert_adam/final/')
  jax.tree.map(oracle.close, params, final)
