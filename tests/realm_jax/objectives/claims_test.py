# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Classes of claims against NumPy; what has influence, what none."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from realm_jax.objectives import claims
from retrieval.nn import means
from tests.realm_jax.data import tiny_qa
from tests.realm_jax.nn import tiny

CONFIG = claims.ClaimsConfig(realm=tiny.config(), num_classes=3)
MODEL = claims.Claims(CONFIG)
B, R, N = tiny_qa.B, tiny_qa.R, CONFIG.num_classes


def _init(**kwargs):
  return nn.unbox(claims.init_params(jax.random.key(0), CONFIG, **kwargs))


@functools.cache
def _params():
  return tiny.draw(jax.eval_shape(_init))


def _batch(seed=0):
  batch = tiny_qa.batch(seed)
  del batch['reader_correct'], batch['reader_block_mask']
  return batch | {'claim_label': np.array([2, 0, 1], np.int32)}


@jax.jit
@functools.partial(jax.value_and_grad, has_aux=True)
def _step(params, batch):
  found = claims.loss(MODEL, params, batch, jax.random.key(0), True)
  return means.values(found)


def _run(batch):
  (value, metrics), grads = _step(_params(), jax.tree.map(jnp.asarray, batch))
  return float(value), {k: float(v) for k, v in metrics.items()}, grads


def _same(found, expected):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6),
    found,
    expected,
  )


def test_loss_equals_numpy():
  batch = _batch()
  jax_batch = jax.tree.map(jnp.asarray, batch)
  retriever, classes = jax.jit(MODEL.apply)({'params': _params()}, jax_batch)
  assert classes.shape == (B, R, N)
  retriever, classes = (np.asarray(x, np.float64) for x in (retriever, classes))
  early, full, best, marginal = [], [], [], []
  for b in range(B):
    scores = classes[b] + retriever[b, :R, None]
    scores = scores[batch['reader_valid'][b]]
    lse = scipy.special.logsumexp
    full.append(lse(scores) - lse(scores[:, batch['claim_label'][b]]))
    best.append(np.argmax(scores) % N == batch['claim_label'][b])
    by_class = lse(scores, axis=0)
    marginal.append(by_class.argmax() == batch['claim_label'][b])
    valid = retriever[b][batch['beam_valid'][b]]
    early.append(lse(valid) - retriever[b, 0])
  value, metrics, grads = _run(batch)
  _same(
    (value, metrics),
    (
      np.mean(full) + np.mean(early),
      {
        'full_loss': np.mean(full),
        'early_loss': np.mean(early),
        'accuracy': np.mean(best),
        'marginal_accuracy': np.mean(marginal),
        'beam_has_answer': 1.0,
      },
    ),
  )
  size = lambda x: max(np.abs(y).max() for y in jax.tree.leaves(x))  # noqa: E731
  assert size(grads['embedder']) > 1e-3 and size(grads['classifier']) > 1e-3


def test_both_rules():
  scores = np.full((1, 2, 3), -5.0, np.float32)
  scores[0, 0] = [1.0, -5.0, 0.9]
  scores[0, 1, 2] = 0.9
  scores = jnp.asarray(scores)
  assert claims.predict(scores) == 0
  assert claims.predict(scores, 'marginal') == 2
  with pytest.raises(ValueError, match="rule 'mean'; expected one of"):
    claims.predict(scores, 'mean')


def test_starts_from_a_realm():
  realm = tiny.params(CONFIG.realm, seed=3)
  found, random = _init(embedder=realm, encoder=realm), _init()
  assert set(found) == {'embedder', 'classifier'}
  assert set(found['classifier']) == {'bert', 'classes'}
  width = CONFIG.realm.encoder.d_model
  assert found['classifier']['classes']['kernel'].shape == (width, N)
  bert = dict(found['classifier']['bert'])
  equal = np.testing.assert_array_equal
  jax.tree.map(
    equal, bert.pop('pooler'), random['classifier']['bert']['pooler']
  )
  jax.tree.map(equal, bert, realm['encoder']['bert'])
  jax.tree.map(equal, found['embedder'], realm['embedder'])
  del realm['encoder']['bert']['layer_0']['output']
  with pytest.raises(
    ValueError, match='there is no classifier/bert/layer_0/out'
  ):
    _init(encoder=realm)
