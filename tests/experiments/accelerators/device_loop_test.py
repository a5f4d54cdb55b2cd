# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps whose data lie on the device are those of Optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.accelerators import device_loop
from experiments.engine import optimizers
from retrieval.nn import means


def _loss(params, batch, key, train):
  del key, train
  error = (batch - params['a']['kernel'] - params['b']['kernel']) ** 2
  return means.of(error, jnp.ones_like(error, bool)), {}


def _batch(data, key):
  return data['x'][jax.random.randint(key, (4,), 0, len(data['x']))]


def test_steps_are_those_of_the_optimizer():
  config = optimizers.OptimizerConfig(warmup_steps=2, learning_rate=0.1)
  program = device_loop.Program(
    _loss, _batch, config, frozen=lambda x: x.startswith('b'), steps=5
  )
  start = {'a': {'kernel': jnp.ones((2, 3))}, 'b': {'kernel': jnp.ones((2, 3))}}
  data = {'x': jax.random.normal(jax.random.key(1), (16, 2, 3))}
  *_, (step, found, _) = program.train(start, data, seed=3, num_steps=10)

  def value(x, batch):
    params = {'a': {'kernel': x['a/kernel']}, 'b': start['b']}
    return _loss(params, batch, None, True)[0].value

  expected = {'a/kernel': start['a']['kernel']}
  optimizer = optimizers.make_optimizer(config, 10)
  state = optimizer.init(expected)
  for i in range(10):
    key = jax.random.fold_in(jax.random.key(3), i)
    batch = _batch(data, jax.random.fold_in(key, 0))
    grads = jax.grad(value)(expected, batch)
    updates, state = optimizer.update(grads, state, expected)
    expected = optax.apply_updates(expected, updates)
  assert step == 10
  np.testing.assert_allclose(
    found['a']['kernel'], expected['a/kernel'], rtol=1e-5
  )
  np.testing.assert_array_equal(found['b']['kernel'], start['b']['kernel'])


def test_runs_side_by_side_are_those_alone():
  config = optimizers.OptimizerConfig(warmup_steps=2, learning_rate=0.1)
  program = device_loop.Program(
    lambda params, batch, key, train: _loss(params, *batch, train),
    lambda data, key: (_batch(data, key) * data['step'], key),
    config,
    steps=5,
  )
  one = {'a': {'kernel': jnp.ones((2, 3))}, 'b': {'kernel': jnp.ones((2, 3))}}
  both = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), one)
  data = {'x': jax.random.normal(jax.random.key(1), (16, 2, 3))}
  *_, (_, found, metrics) = program.train(both, data, seed=[3, 4], num_steps=10)
  other = jax.tree.map(lambda x: 2 * x, one)
  *_, (_, wanted, alone) = program.train(other, data, seed=4, num_steps=10)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x[1], y, rtol=1e-5), found, wanted
  )
  assert metrics['loss'][1] == pytest.approx(alone['loss'])
  assert metrics['loss'][0] != pytest.approx(alone['loss'])


def test_a_budget_ends_the_run():
  config = optimizers.OptimizerConfig(learning_rate=0.1)
  program = device_loop.Program(_loss, _batch, config, steps=2)
  start = {'a': {'kernel': jnp.ones((2, 3))}, 'b': {'kernel': jnp.ones((2, 3))}}
  data = {'x': jnp.zeros((16, 2, 3))}
  found = [
    float(x['loss']) for *_, x in program.train(start, data, seed=0, seconds=1)
  ]
  assert len(found) > 1 and found[-1] < found[0]
