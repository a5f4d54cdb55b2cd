# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers in loops compute what layers one by one do."""

import dataclasses
import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import initial, retro, stack
from tests.retro_jax.nn import tiny

_CONFIG = tiny.config(num_layers=7, cca_layers=(2, 4, 6))


@functools.partial(jax.jit, static_argnames=('c', 'reads'))
def _gradient(c, params, reads=True):
  args = tiny.inputs(c)[: 3 if reads else 1]

  def loss(p):
    return jnp.mean(jax.nn.logsumexp(tiny.apply(c, p, *args), -1))

  return jax.value_and_grad(loss)(params)


def _close(ours, expected):
  close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
  jax.tree.map(close, ours, expected)


@pytest.mark.parametrize(
  'fields',
  [
    {'layers': 'scanned'},
    {'layers': 'scanned', 'remat': 'full'},
    *(
      pytest.param(fields, marks=pytest.mark.slow)
      for fields in (
        {'layers': 'scanned', 'remat': 'attention'},
        {'layers': 'unrolled', 'remat': 'full'},
      )
    ),
    {'layers': 'unrolled', 'remat': 'attention'},
  ],
)
def test_loops_and_policies_change_no_gradient(fields):
  params = tiny.params(_CONFIG)
  ours = _gradient(dataclasses.replace(_CONFIG, **fields), params)
  _close(ours, _gradient(_CONFIG, params))


@pytest.mark.parametrize('reads', [True, False])
def test_stacked_parameters_compute_the_same(reads):
  c = dataclasses.replace(_CONFIG, layers='scanned')
  flat = tiny.params(c)
  value, grads = _gradient(c, stack.stack_params(c, flat), reads)
  assert set(grads) > {'layers_attn', 'layers_cca'}
  ours = value, stack.unstack_params(c, grads)
  _close(ours, _gradient(_CONFIG, flat, reads))


def _equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope='module')
def boxed():
  """A config of two groups, with flat parameters in boxes."""
  c = dataclasses.replace(_CONFIG, layers='scanned')
  return c, jax.jit(initial.flat_params, static_argnums=1)(jax.random.key(0), c)


def test_stacking_has_an_inverse(boxed):
  c, flat = boxed
  stacked = stack.stack_params(c, flat)
  decoder = {name for name in stacked if name.startswith('layer')}
  assert decoder == {'layers_attn', 'layers_cca', 'layers_ffw'}
  q = stacked['layers_cca']['cca']['attention']['q']
  own = flat['layer_4_cca']['cca']['attention']['q']
  assert q.names == (None, 'embed', 'heads') and own.names == q.names[1:]
  np.testing.assert_array_equal(q.value[1], own.value)
  again = stack.unstack_params(c, stacked)
  assert jax.tree.structure(again) == jax.tree.structure(flat)
  _equal(again, flat)
  _equal(stack.unstack_params(c, flat), flat)
  shapes = jax.eval_shape(functools.partial(stack.stack_params, c), flat)
  assert jax.tree.structure(shapes) == jax.tree.structure(stacked)
  # Parts in the host's memory stay there.
  read = {x: flat[x] for x in flat if x.endswith('_cca')}
  assert set(stack.stack_params(c, nn.unbox(read))) == {'layers_cca'}
  host = stack.stack_params(c, jax.tree.map(np.asarray, nn.unbox(flat)))
  assert all(type(x) is np.ndarray for x in jax.tree.leaves(host))


def test_a_seed_gives_equal_values_in_both_forms(boxed):
  c, flat = boxed
  init = jax.jit(initial.init_params, static_argnums=1)
  stacked = init(jax.random.key(0), c)
  assert stack.is_stacked(stacked) and not stack.is_stacked(flat)
  _equal(stack.unstack_params(c, stacked), flat)


def test_dropout_in_loops_follows_its_key():
  c = tiny.config(
    num_layers=5, cca_layers=(), layers='scanned', dropout_rate=0.5
  )
  params, tokens = tiny.params(c), jnp.asarray(tiny.inputs(c)[0])

  @jax.jit
  def apply(seed):
    rngs = {'dropout': jax.random.key(seed)}
    variables = {'params': jax.tree.map(jnp.asarray, params)}
    return retro.Retro(c).apply(variables, tokens, train=True, rngs=rngs)

  np.testing.assert_array_equal(apply(0), apply(0))
  assert not np.allclose(apply(0), apply(1))
