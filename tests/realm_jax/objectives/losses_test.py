# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Likelihoods against slow NumPy; what the loss trains, and what it passes over."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.nn import realm as model_lib
from realm_jax.objectives import losses
from retrieval.nn import means

B, K, M, V = 4, 3, 3, 7


class Table(nn.Module):
  """A retriever and an encoder whose outputs are their parameters."""

  @nn.compact
  def __call__(self, batch, *, train=False):
    row = batch['row']
    scores = self.param('retriever', nn.initializers.zeros, (B, K))[row]
    logits = self.param('encoder', nn.initializers.zeros, (B, K, M, V))[row]
    log_probs = jax.nn.log_softmax(logits)
    targets = batch['mlm_targets'][:, None, :, None]
    targets = jnp.broadcast_to(targets, (*log_probs.shape[:3], 1))
    return model_lib.RealmOutput(
      scores=scores,
      gold_log_probs=jnp.take_along_axis(log_probs, targets, -1)[..., 0],
      best_log_probs=log_probs.max(-1),
    )


@pytest.fixture(scope='module')
def params():
  rng = np.random.default_rng(0)
  scores = rng.standard_normal((B, K), np.float32)
  scores[2, 1] = 2
  logits = rng.standard_normal((B, K, M, V), np.float32)
  return {'retriever': scores, 'encoder': logits}


@pytest.fixture(scope='module')
def batch(params):
  """Row 0 has one target and a candidate less; row 3 has no target.

  The best candidate of row 2 predicts its targets.
  """
  targets = np.random.default_rng(1).integers(0, V, (B, M), np.int32)
  targets[2] = params['encoder'][2, 1].argmax(-1)
  mask = np.array([[1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]], bool)
  valid = np.ones((B, K), bool)
  valid[0, 2] = False
  return {
    'row': np.arange(B),
    'mlm_targets': targets,
    'mlm_mask': mask,
    'candidate_valid': valid,
  }


@functools.partial(jax.jit, static_argnames='objective')
def _grad(params, batch, objective='marginal_token'):
  def value(params):
    key = jax.random.key(0)
    result = losses.loss(Table(), params, batch, key, True, objective=objective)
    return means.values(result)

  (value, metrics), grads = jax.value_and_grad(value, has_aux=True)(params)
  return value, metrics, grads


def _numbers(params, batch):
  """p(z | x) [B, K], p(y | x, z) of all tokens [B, K, M, V] and of the gold."""
  p = np.exp(params['retriever'].astype(np.float64)) * batch['candidate_valid']
  q = np.exp(params['encoder'].astype(np.float64))
  q /= q.sum(-1, keepdims=True)
  rows, tokens = np.arange(B)[:, None], np.arange(M)[None]
  gold = q.transpose(0, 2, 3, 1)[rows, tokens, batch['mlm_targets']]
  return p / p.sum(-1, keepdims=True), q, gold.transpose(0, 2, 1)


def _arrays(params, batch):
  params, batch = jax.tree.map(jnp.asarray, (params, batch))
  out = Table().apply({'params': params}, batch)
  masks = losses.batch_masks(batch)
  return out.scores, out.gold_log_probs, masks


def test_the_gradient_is_the_posterior_less_the_prior(params, batch):
  """Guu et al. 2020, section 3.3; of each token, or of all of a row."""
  prior, _, gold = _numbers(params, batch)
  mask = batch['mlm_mask'][:, None]
  joint = prior[..., None] * gold
  by_token = joint / joint.sum(1, keepdims=True) - prior[..., None]
  expected = -(by_token * mask).sum(-1) / mask.sum()
  _, _, grads = _grad(params, batch)
  np.testing.assert_allclose(grads['retriever'], expected, atol=1e-6)
  posterior = np.exp(losses.log_posterior(*_arrays(params, batch)))
  _, _, grads = _grad(params, batch, 'marginal_seq')
  np.testing.assert_allclose(
    grads['retriever'], -(posterior - prior) / 3, atol=1e-6
  )


def test_metrics_equal_numpy(params, batch):
  prior, q, gold = _numbers(params, batch)
  mask = batch['mlm_mask']
  marginal = np.log(np.einsum('bk,bkm->bm', prior, gold))
  logs = np.log(np.where(prior, prior, 1))
  predicted = q[np.arange(B), prior.argmax(1)].argmax(-1)
  by_token = {
    'nll': -marginal,
    'retrieval_utility': marginal - np.log(gold[:, 0]),
    'null_probability': prior[:, :1] + 0 * marginal,
    'entropy': -(prior * logs).sum(1, keepdims=True) + 0 * marginal,
    'accuracy': (predicted == batch['mlm_targets']) + 0 * marginal,
  }
  value, found, _ = _grad(params, batch)
  assert found['accuracy'] >= 2 / 6
  for name, x in by_token.items():
    np.testing.assert_allclose(found.pop(name), x[mask].mean(), rtol=1e-5)
  assert not found
  expected = -marginal[mask].mean()
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  _, found, _ = _grad(params, batch, 'marginal_seq')
  for name, x in by_token.items():
    rows = [x[b][mask[b]].mean() for b in range(3)]
    np.testing.assert_allclose(found[name], np.mean(rows), rtol=1e-5)
