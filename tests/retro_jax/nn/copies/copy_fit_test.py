# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A lookup that asks for what a trained decoder has made of its embeddings."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import retro
from retro_jax.nn.copies import copy_fit
from tests.retro_jax.nn.copies import copy_init_test

_CONFIG = dataclasses.replace(copy_init_test.CONFIG, cca_layers=(2,))
_READER = ('layer_2_cca', 'cca', 'attention', 'q')


@pytest.fixture(scope='module')
def start():
  """A copier whose decoder turns the stream, as a trained one may."""
  params, start = copy_init_test._params(_CONFIG)
  decoder = {
    name: 6 * x if name == 'o' else x
    for name, x in params['layer_1_attn']['attention'].items()
  }
  start['layer_1_attn']['attention'] = decoder
  return start


def _at(tree, path):
  for name in path:
    tree = tree[name]
  return np.asarray(tree)


def _rows(seed):
  tokens = np.random.default_rng(seed).integers(0, 300, (16, 64), np.int32)
  return jnp.asarray(tokens), jnp.ones_like(tokens)


@jax.jit
def _states(params, tokens):
  c = dataclasses.replace(_CONFIG, cca_layers=())
  _, kept = retro.Retro(c).apply(
    {'params': params},
    tokens,
    mutable=['intermediates'],
    capture_intermediates=lambda module, _: module.name == 'layer_2_attn',
  )
  return kept['intermediates']['layer_2_attn']['__call__'][0]


def _found(params, queries, seed=1):
  """Share of tokens that the query asks for, of all tokens of the vocabulary."""
  tokens, _ = _rows(seed)
  table = np.asarray(params['embedding'])
  table = table / np.sqrt((table**2).mean(-1, keepdims=True))
  x = np.asarray(_states(params, tokens))
  x = x / np.sqrt((x**2).mean(-1, keepdims=True))
  asked = x.reshape(-1, x.shape[-1]) @ _at(queries, _READER)
  scores = asked @ (table @ _at(params, _READER)).T
  return (scores.argmax(-1) == np.asarray(tokens).reshape(-1)).mean()


def test_fitted_queries_find_the_last_token(start):
  fitted = copy_fit.fit_queries(start, _CONFIG, *_rows(0))
  assert 10 * _found(start, start) < _found(start, fitted)


def test_only_queries_change(start):
  tokens, segments = _rows(0)
  fitted = copy_fit.fit_queries(start, _CONFIG, tokens, segments)
  changed = [
    tuple(key.key for key in path)
    for (path, a), (_, b) in zip(
      jax.tree_util.tree_leaves_with_path(start),
      jax.tree_util.tree_leaves_with_path(fitted),
      strict=True,
    )
    if a.shape != b.shape or np.any(np.asarray(a) != np.asarray(b))
  ]
  assert changed == [_READER]
