# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO that starts as a lookup finds what follows the last token."""

import dataclasses
import functools

from flax import linen as nn, traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import copy_init, retro as model
from tests.retro_jax.nn import tiny

CONFIG = tiny.config(
  vocab_size=300,
  d_model=128,
  d_ff=64,
  num_heads=4,
  head_dim=32,
  cca_layers=(2, 3),
  chunk_length=32,
  neighbor_length=64,
  encoder_d_model=128,
  encoder_d_ff=64,
  encoder_num_heads=2,
  encoder_head_dim=32,
  encoder_num_layers=1,
  share_embeddings=True,
  position_base=100.0,
  init_scale=0.1,
  copy_init=True,
)


@functools.partial(jax.jit, static_argnames='config')
def _params(config, seed=0):
  key = jax.random.key(seed)
  tokens = jnp.zeros((1, config.chunk_length), jnp.int32)
  params = nn.unbox(model.Retro(config).init(key, tokens)['params'])
  return params, copy_init.apply(key, params, config)


def _rank(logits, tokens):
  """Mean number of tokens that are likelier than the given ones."""
  chosen = np.take_along_axis(logits, tokens[..., None], -1)
  return (logits > chosen).sum(axis=-1).mean()


def repeated(seed):
  """64 tokens, each once; the neighbors of chunk 0 hold chunk 1, among others."""
  rng = np.random.default_rng(seed)
  tokens = rng.permutation(300)[:64][None].astype(np.int32)
  neighbors = rng.integers(0, 300, (1, 2, 2, 64), np.int32)
  neighbors[0, 0, 1, 17:49] = tokens[0, 32:]
  return tokens, neighbors


@pytest.mark.parametrize('seed', range(3))
def test_what_stands_in_a_neighbor_is_looked_up(seed):
  c = CONFIG
  tokens, neighbors = repeated(seed)
  mask = np.ones(neighbors.shape, bool)
  plain, start = _params(c, seed)
  targets = tokens[:, 33:64]
  ranks = {
    name: _rank(
      np.asarray(tiny.apply(c, p, tokens, neighbors, m))[:, 32:63], targets
    )
    for name, p, m in (
      ('plain', plain, mask),
      ('lookup', start, mask),
      ('off', start, np.zeros_like(mask)),
    )
  }
  assert ranks['lookup'] < 60  # 150 is chance
  assert ranks['plain'] > 110 and ranks['off'] > 110


def test_copy_size_scales_what_cross_attention_adds():
  params = jax.tree.map(jnp.asarray, tiny.params(CONFIG))
  one, two = (
    traverse_util.flatten_dict(
      copy_init.apply(jax.random.key(0), params, c), sep='/'
    )
    for c in (CONFIG, dataclasses.replace(CONFIG, copy_size=0.3))
  )
  differ = {name for name in one if not np.array_equal(one[name], two[name])}
  assert differ == {f'layer_{i}_cca/cca/attention/o' for i in CONFIG.cca_layers}
  for name in differ:
    np.testing.assert_allclose(two[name], 3 * one[name], rtol=1e-6)


@pytest.mark.parametrize(
  'change',
  [
    {},
    {'cca_layers': ()},
    {'num_heads': 3, 'head_dim': 16, 'encoder_head_dim': 48},
    {'d_model': 33, 'encoder_d_model': 33, 'head_dim': 7},
    {'param_dtype': 'bfloat16', 'scale_logits': False},
  ],
)
def test_shapes_and_types_stay(change):
  config = dataclasses.replace(CONFIG, **change)
  plain = jax.tree.map(jnp.asarray, tiny.params(config))
  start = copy_init.apply(jax.random.key(0), plain, config)
  same = jax.tree.map(
    lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), plain, start
  )
  assert all(jax.tree.leaves(same))
  finite = jax.tree.map(lambda x: bool(jnp.isfinite(x).all()), start)
  assert all(jax.tree.leaves(finite))


@jax.jit
def _states(params, tokens):
  c = dataclasses.replace(CONFIG, cca_layers=())
  _, state = model.Retro(c).apply(
    {'params': params},
    tokens,
    mutable=['intermediates'],
    capture_intermediates=lambda module, _: module.name == 'layer_2_attn',
  )
  return state['intermediates']['layer_2_attn']['__call__'][0]


def _share_asked_for(params, keys, queries, tokens):
  """Share of tokens that the query asks for, of all tokens of the vocabulary."""
  table, x = (
    np.asarray(params['embedding']),
    np.asarray(_states(params, tokens)),
  )
  table, x = (
    y / np.sqrt((y**2).mean(-1, keepdims=True))
    for y in (table, x.reshape(-1, x.shape[-1]))
  )
  asked = (x @ queries @ (table @ keys).T).argmax(-1)
  return (asked == np.asarray(tokens).reshape(-1)).mean()


def test_fitted_queries_find_the_last_token_of_a_trained_decoder():
  c = dataclasses.replace(CONFIG, cca_layers=(2,))
  params, start = _params(c)
  # The decoder turns the stream, as a trained one may.
  decoder = params['layer_1_attn']['attention']
  start['layer_1_attn']['attention'] = decoder | {'o': 6 * decoder['o']}
  rng = np.random.default_rng(0)
  rows, others = jnp.asarray(rng.integers(0, 300, (2, 16, 64), np.int32))
  fitted = copy_init.fit_queries(start, c, rows, jnp.ones_like(rows))
  before, after = (
    traverse_util.flatten_dict(x, sep='/') for x in (start, fitted)
  )
  name = 'layer_2_cca/cca/attention/q'
  changed = [k for k in before if not np.array_equal(before[k], after[k])]
  assert changed == [name]
  plain, found = (
    _share_asked_for(start, before[name], x[name], others)
    for x in (before, after)
  )
  assert 10 * plain < found
