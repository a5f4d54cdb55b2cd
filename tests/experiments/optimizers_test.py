# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedule, decay mask, AdamW against numpy, accumulation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import optimizers

_CONFIG = optimizers.OptimizerConfig(
  learning_rate=2e-4, warmup_steps=750, final_fraction=0.1
)


@pytest.mark.parametrize(
  'step, expected',
  [
    (0, 1e-7),
    (375, (1e-7 + 2e-4) / 2),
    (750, 2e-4),
    (750 + 5000, (2e-4 + 2e-5) / 2),
    (750 + 2500, 2e-5 + (2e-4 - 2e-5) * (1 + np.cos(np.pi / 4)) / 2),
    (10_750, 2e-5),
  ],
)
def test_schedule(step, expected):
  schedule = optimizers.learning_rate_schedule(_CONFIG, num_steps=10_750)
  assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=2e-10)


def test_warmup_longer_than_the_run():
  with pytest.raises(ValueError, match='warmup_steps=750.*num_steps=500'):
    optimizers.learning_rate_schedule(_CONFIG, num_steps=500)


@pytest.mark.parametrize(
  'fields, match',
  [
    ({'lerning_rate': 1.0}, 'lerning_rate'),
    ({'accumulate_steps': 0}, 'accumulate_steps=0'),
    ({'learning_rate': 0.0}, 'learning_rate > 0'),
  ],
)
def test_bad_fields(fields, match):
  with pytest.raises(ValueError, match=match):
    optimizers.make_config(fields)


def test_one_step_equals_adamw_by_hand():
  config = dataclasses.replace(
    _CONFIG,
    learning_rate=0.1,
    warmup_steps=0,
    weight_decay=0.5,
    clip_norm=1.0,
  )
  rng = np.random.default_rng(0)
  params = {
    'kernel': rng.standard_normal((3, 2), np.float32),
    'bias': rng.standard_normal(2, np.float32),
  }
  grads = {
    'kernel': rng.standard_normal((3, 2), np.float32),
    'bias': rng.standard_normal(2, np.float32),
  }
  tx = optimizers.make_optimizer(config, num_steps=10)
  updates, _ = tx.update(grads, tx.init(params), params)
  norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
  assert norm > 1
  for name, decay in (('kernel', 0.5), ('bias', 0.0)):
    g = grads[name] / norm
    # After one step the corrected moments are g and g^2.
    expected = -0.1 * (g / (np.abs(g) + 1e-8) + decay * params[name])
    np.testing.assert_allclose(updates[name], expected, rtol=1e-5, atol=1e-7)


def test_mask_leaves_norms_and_biases():
  params = {'w': jnp.ones((2, 2)), 'b': jnp.ones(2), 'scale': jnp.ones(())}
  mask = optimizers.decay_mask(params)
  assert mask == {'w': True, 'b': False, 'scale': False}


@pytest.mark.parametrize('weighted', [False, True])
def test_accumulation(weighted):
  rng = np.random.default_rng(0)
  batch = {
    'x': rng.standard_normal((8, 4), np.float32),
    'weight': rng.integers(1, 5, 8).astype(np.float32),
  }
  params = {'w': rng.standard_normal(4, np.float32)}

  def loss(params, batch, key):
    del key
    weight = batch['weight'] if weighted else jnp.ones_like(batch['weight'])
    values = (batch['x'] @ params['w']) ** 2
    metrics = {'second': (values * weight).sum() / weight.sum() * 2}
    if weighted:
      metrics['weight'] = weight.sum()
    return (values * weight).sum() / weight.sum(), metrics

  key = jax.random.key(0)
  whole, grads = optimizers.value_and_grad(loss, params, batch, key)
  parts, summed = optimizers.value_and_grad(loss, params, batch, key, 4)
  np.testing.assert_allclose(grads['w'], summed['w'], rtol=1e-6)
  assert float(whole['loss']) == pytest.approx(float(parts['loss']), rel=1e-6)
  assert float(parts['second']) == pytest.approx(
    2 * float(whole['loss']), rel=1e-6
  )
  if weighted:
    assert float(parts['weight']) == batch['weight'].sum()


def test_microbatches_have_their_own_randomness():
  def loss(params, batch, key):
    return params * jax.random.uniform(key), {'key': jax.random.uniform(key)}

  key = jax.random.key(0)
  found, _ = optimizers.value_and_grad(loss, 1.0, np.zeros((4, 1)), key, 2)
  draws = [jax.random.uniform(jax.random.fold_in(key, i)) for i in range(2)]
  assert draws[0] != draws[1]
  assert float(found['key']) == pytest.approx(float(sum(draws) / 2))
