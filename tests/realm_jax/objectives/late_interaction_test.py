# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The contrast of late interaction against a slow loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.objectives import late_interaction
from retrieval.nn import (
  bert,
  colbert,
  means,
  sharding,
)

B, P, Q, T, V = 4, 3, 5, 6, 30
CONFIG = bert.BertConfig(
  vocab_size=V,
  d_model=8,
  d_ff=12,
  num_heads=2,
  num_layers=1,
  max_length=8,
  dropout_rate=0.0,
  attention_dropout_rate=0.0,
  initializer_range=0.7,
  pooler=False,
)
MODEL = colbert.Colbert(CONFIG, 4)


def _batch():
  rng = np.random.default_rng(0)
  lengths = rng.integers(3, T + 1, (B, P))
  mask = np.arange(T) < lengths[..., None]
  scored = mask & (rng.random((B, P, T)) < 0.7)
  scored[..., 0] = True
  valid = np.ones((B, P), bool)
  valid[1, 2] = False
  hashes = np.arange(B * P, dtype=np.uint32).reshape(B, P, 1) * np.ones(
    2, np.uint32
  )
  hashes[3, 0] = hashes[0, 0]  # two questions have the same block
  return {
    'query_ids': rng.integers(V, size=(B, Q)).astype(np.int32),
    'query_mask': np.arange(Q) < rng.integers(1, Q + 1, (B, 1)),
    'block_ids': rng.integers(V, size=(B, P, T)).astype(np.int32),
    'block_mask': mask,
    'block_scored': scored,
    'block_valid': valid,
    'block_hash': hashes,
  }


@pytest.fixture(scope='module')
def params():
  ids = jnp.zeros((1, 2), jnp.int32)
  found = jax.jit(MODEL.init)(jax.random.key(0), ids, ids == 0)
  return sharding.unbox(found['params'])


@jax.jit
def _loss(params, batch):
  key = jax.random.key(0)
  return means.values(late_interaction.loss(MODEL, params, batch, key, True))


def _slow(params, batch):
  """Loss and accuracies, one candidate after the other."""
  encode = jax.jit(lambda *x: MODEL.apply({'params': params}, *x))
  ids = batch['query_ids']
  queries = np.asarray(encode(ids, batch['query_mask']))
  ids, mask = (batch[x].reshape(-1, T) for x in ('block_ids', 'block_mask'))
  blocks = np.asarray(encode(ids, mask)).reshape(B, P, T, -1)
  losses, first, first_of_own = [], [], []
  for row in range(B):
    scores, own = [], []
    for other in range(B):
      for p in range(P):
        is_own = other == row and p == 0
        same = batch['block_hash'][other, p] == batch['block_hash'][row, 0]
        if not batch['block_valid'][other, p] or (same.all() and not is_own):
          continue
        vectors = blocks[other, p][batch['block_scored'][other, p]]
        score = sum(max(q @ v for v in vectors) for q in queries[row])
        scores.append(score)
        own.append(other == row)
        if is_own:
          right = score
    losses.append(np.log(np.sum(np.exp(scores))) - right)
    first.append(max(scores) == right)
    theirs = [s for s, o in zip(scores, own, strict=True) if o]
    first_of_own.append(max(theirs) == right)
  return np.mean(losses), np.mean(first), np.mean(first_of_own)


def test_loss_equals_a_slow_loop(params):
  loss, metrics = _loss(params, _batch())
  wanted, accuracy, accuracy_hard = _slow(params, _batch())
  assert loss == pytest.approx(wanted, rel=1e-4)
  assert metrics['accuracy'] == pytest.approx(accuracy)
  assert metrics['accuracy_hard'] == pytest.approx(accuracy_hard)
