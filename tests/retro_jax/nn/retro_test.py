# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Properties of the model: OFF, causality, isolation, masks, types, errors."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import initial, layers, retro as model
from tests.retro_jax.nn import tiny


def test_off_is_all_neighbors_missing_exactly():
  c = tiny.config(projection_biases=True)
  p = tiny.params(c)
  tokens, neighbors, mask = tiny.inputs(c, length=15)
  apply = functools.partial(tiny.apply, c, p)
  off = apply(tokens)
  missing = apply(tokens, neighbors, np.zeros_like(mask))
  np.testing.assert_array_equal(off, missing)
  np.testing.assert_array_equal(off, apply(tokens, neighbors[:, :, :0]))
  assert np.abs(off - apply(tokens, neighbors, mask)).max() > 0.1


@pytest.mark.parametrize('length', [3, 4, 9])
def test_init_makes_every_parameter(length):
  c = tiny.config()
  tokens, neighbors, mask = tiny.inputs(c, length=length)

  def shapes(*args):
    variables = jax.eval_shape(model.Retro(c).init, jax.random.key(0), *args)
    return jax.tree.map(lambda x: x.shape, nn.unbox(variables['params']))

  assert shapes(tokens) == shapes(tokens, neighbors, mask)
  expected = jax.tree.map(lambda x: x.shape, tiny.params(c))
  assert shapes(tokens) == expected


def test_causal_by_gradients():
  """Each token has an entry of its own: gradients of tables are by position."""
  c = tiny.config(vocab_size=56, tie_readout=False)
  length, chunks, rng = 14, 4, np.random.default_rng(3)
  sizes = {'embedding': c.d_model, 'encoder_embedding': c.encoder_d_model}
  tables = {
    name: rng.standard_normal((c.vocab_size, size)).astype(np.float32)
    for name, size in sizes.items()
  }
  params = tiny.params(c)
  tokens = np.arange(length, dtype=np.int32)[None]
  neighbors = np.arange(56, dtype=np.int32).reshape(1, chunks, 2, 7)

  def probe(tables):
    logits = tiny.apply(c, params | tables, tokens, neighbors)
    return logits[0] @ np.ones(c.vocab_size, np.float32)

  found = jax.jit(jax.jacrev(probe))(tables)
  by_token = np.abs(found['embedding']).max(-1)[:, :length]
  by_neighbor = np.abs(found['encoder_embedding']).max(-1)
  by_neighbor = by_neighbor.reshape(length, chunks, -1)
  np.testing.assert_array_equal(by_token > 0, np.tri(length, dtype=bool))
  for t in range(length):
    for u in range(chunks):
      assert ((by_neighbor[t, u] > 0) == (t >= u * 4 + 3)).all()


def test_masked_tokens_and_order_of_neighbors_do_not_matter():
  c = tiny.config()
  p = tiny.params(c)
  tokens, neighbors, mask = tiny.inputs(c, neighbors=3)
  expected = tiny.apply(c, p, tokens, neighbors, mask)
  garbage = np.where(mask, neighbors, -7)
  np.testing.assert_array_equal(
    tiny.apply(c, p, tokens, garbage, mask), expected
  )
  turned = tiny.apply(c, p, tokens, neighbors[:, :, ::-1], mask[:, :, ::-1])
  np.testing.assert_allclose(turned, expected, atol=1e-5)
  # A missing neighbor more changes nothing (k at evaluation is free).
  more = np.concatenate([neighbors, neighbors[:, :, :1]], 2)
  masked = np.concatenate([mask, np.zeros_like(mask[:, :, :1])], 2)
  np.testing.assert_allclose(
    tiny.apply(c, p, tokens, more, masked), expected, atol=1e-5
  )


def test_gradients_are_finite_with_everything_masked():
  c = tiny.config()
  p = tiny.params(c)
  tokens, neighbors, mask = tiny.inputs(c, length=12)
  segments = np.zeros_like(tokens)

  def loss(p):
    logits = tiny.apply(
      c, p, tokens, neighbors, np.zeros_like(mask), segment_ids=segments
    )
    return jnp.sum(logits**2)

  for gradient in jax.tree.leaves(jax.jit(jax.grad(loss))(p)):
    assert np.isfinite(gradient).all()


def test_bfloat16():
  c = tiny.config(dtype='bfloat16')
  p = tiny.params(c)
  args = tiny.inputs(c)
  logits = tiny.apply(c, p, *args)
  assert logits.dtype == jnp.float32
  expected = np.asarray(tiny.apply(tiny.config(), p, *args))
  error = np.abs(logits - expected).mean() / np.abs(expected).mean()
  assert 1e-5 < error < 0.03


def test_gradient_of_a_frequent_word_is_a_float32_sum():
  # A sum of ones in bfloat16 stops at 256.
  ids = jnp.zeros((8, 128), jnp.int32)

  def total(table):
    return layers.embed(table, ids, jnp.bfloat16).astype(jnp.float32).sum()

  gradient = jax.jit(jax.grad(total))(jnp.ones((4, 3)))
  np.testing.assert_array_equal(gradient[0], 1024)
  np.testing.assert_array_equal(gradient[1:], 0)


def test_dropout_acts_in_training_only():
  small = {'num_layers': 1, 'cca_layers': (1,), 'encoder_num_layers': 1}
  c = tiny.config(dropout_rate=0.5, **small)
  p = tiny.params(c)
  args = tiny.inputs(c)
  rngs = {'dropout': jax.random.key(0)}
  plain = tiny.apply(tiny.config(**small), p, *args)
  np.testing.assert_array_equal(tiny.apply(c, p, *args), plain)
  first = tiny.apply(c, p, *args, train=True, rngs=rngs)
  np.testing.assert_array_equal(
    first, tiny.apply(c, p, *args, train=True, rngs=rngs)
  )
  assert np.abs(first - plain).max() > 0.1


def test_all_parameters_carry_logical_axes():
  c = tiny.config(projection_biases=True, ff_biases=True, tie_readout=False)
  tokens = np.zeros((1, 4), np.int32)
  variables = jax.eval_shape(model.Retro(c).init, jax.random.key(0), tokens)
  boxed = jax.tree.leaves(
    variables['params'], is_leaf=lambda x: isinstance(x, nn.Partitioned)
  )
  for leaf in boxed:
    assert isinstance(leaf, nn.Partitioned)
    assert len(leaf.names) == leaf.value.ndim
    assert all(leaf.names)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (lambda t, n, m: (t[0], n, m), 'expected .batch, length'),
    (lambda t, n, m: (t, n[:1], m), r'neighbors \(1, 4'),
    (lambda t, n, m: (t, n[..., :5], m), 'any number, 7'),
    (lambda t, n, m: (t[:, :8], n, m), 'at most 2 chunks'),
    (lambda t, n, m: (t, n, m[:, :, :1]), 'neighbor_mask'),
    (lambda t, n, m: (t, None, m), 'neighbor_mask'),
  ],
)
@pytest.mark.usefixtures('unchecked')
def test_shapes_that_do_not_fit(change, message):
  c = tiny.config()
  with pytest.raises(ValueError, match=message):
    tiny.apply(c, tiny.params(c), *change(*tiny.inputs(c)))
  with pytest.raises(ValueError, match='segment_ids'):
    tokens, _, _ = tiny.inputs(c)
    tiny.apply(c, tiny.params(c), tokens, segment_ids=tokens[:, 1:])


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'cca_layers': (0,)}, 'cca_layers'),
    ({'cca_layers': (2, 2)}, 'cca_layers'),
    ({'share_embeddings': True}, '8 and 12'),
    ({'num_heads': 0}, 'num_heads'),
    ({'dropout_rate': 1.5}, 'dropout_rate'),
    ({'num_kv_heads': 3}, 'num_kv_heads'),
    ({'positions': 'rotary'}, 'head_dim'),
    ({'positions': 'absolute'}, 'max_positions'),
    ({'max_positions': 9}, 'max_positions'),
  ],
)
def test_configs_that_do_not_fit(fields, message):
  with pytest.raises(ValueError, match=message):
    tiny.config(**fields)


def test_a_seed_starts_from_known_parameters():
  """Parameters of a module draw in the order in which it makes them."""
  init = jax.jit(initial.init_params, static_argnums=1)
  boxed = init(jax.random.key(0), tiny.config())
  params = nn.unbox(boxed)
  found = params['layer_1_attn']['attention']
  sums = {name: float(np.abs(found[name]).sum()) for name in 'qkvro'}
  expected = {'q': 2.03297, 'k': 1.96442, 'v': 1.94462, 'r': 1.86834}
  assert sums == pytest.approx(expected | {'o': 0.67906}, rel=1e-4)
