# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers in loops compute what layers one by one do."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import retro, stack
from retro_jax.nn.config import RetroConfig
from tests.retro_jax.nn import tiny

_EVERY_THIRD = tuple(range(6, 13, 3))


def _config(num_layers, cca_layers, **fields) -> RetroConfig:
  return tiny.config(num_layers=num_layers, cca_layers=cca_layers, **fields)


@pytest.mark.parametrize(
  ('num_layers', 'cca_layers', 'expected'),
  [
    (12, _EVERY_THIRD, [(1, 1, 5), (6, 1, 1), (7, 3, 2)]),
    (8, (3, 5), [(1, 1, 2), *((p, 1, 1) for p in (3, 4, 5)), (6, 1, 3)]),
    (4, (1, 2, 3, 4), [(1, 1, 1), (2, 1, 3)]),
    (3, (3,), [(1, 1, 2), (3, 1, 1)]),
    (1, (1,), [(1, 1, 1)]),
  ],
)
def test_plan(num_layers, cca_layers, expected):
  c = _config(num_layers, cca_layers)
  found = stack.plan(c, reads=True, scanned=True)
  assert found == expected
  assert stack.plan(c, reads=False, scanned=True) == [(1, 1, num_layers)]
  assert len(stack.plan(c, reads=True, scanned=False)) == num_layers


@pytest.mark.parametrize(
  'fields',
  [
    {'layers': 'scanned'},
    {'layers': 'scanned', 'remat': 'full'},
    {'layers': 'scanned', 'remat': 'attention'},
    {'layers': 'scanned', 'remat': 'dots'},
    {'layers': 'scanned', 'remat': 'dots_without_batch'},
    {'layers': 'unrolled', 'remat': 'full'},
    {'layers': 'unrolled', 'remat': 'dots'},
  ],
)
def test_loops_and_policies_change_no_gradient(fields):
  c = _config(7, (2, 4, 6))
  params, args = tiny.params(c), tiny.inputs(c)

  def gradient(c):
    def loss(p):
      return jnp.mean(jax.nn.logsumexp(tiny.apply(c, p, *args), -1))

    return jax.jit(jax.value_and_grad(loss))(params)

  ours = gradient(dataclasses.replace(c, **fields))
  for a, b in zip(
    jax.tree.leaves(ours), jax.tree.leaves(gradient(c)), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_deeper_model_has_no_longer_program():
  def num_products(num_layers):
    cca_layers = tuple(range(3, num_layers + 1, 3))
    c = _config(num_layers, cca_layers, layers='scanned')
    params, args = tiny.params(c), tiny.inputs(c)
    program = jax.make_jaxpr(lambda p: tiny.apply(c, p, *args))(params)
    return str(program).count('dot_general')

  assert num_products(9) == num_products(15)


def test_dropout_in_loops_follows_its_key():
  c = _config(5, (), layers='scanned', dropout_rate=0.5)
  params, tokens = tiny.params(c), jnp.asarray(tiny.inputs(c)[0])

  @jax.jit
  def apply(seed):
    rngs = {'dropout': jax.random.key(seed)}
    variables = {'params': jax.tree.map(jnp.asarray, params)}
    return retro.Retro(c).apply(variables, tokens, train=True, rngs=rngs)

  np.testing.assert_array_equal(apply(0), apply(0))
  assert not np.allclose(apply(0), apply(1))
