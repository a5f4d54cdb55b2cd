# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Properties of retriever and encoder; sizes; shards."""

import dataclasses
import functools

from flax import linen as nn
import jax
import numpy as np
import pytest

from realm_jax.nn import initialize, realm as model_lib
from retrieval.nn import bert, sharding
from tests.realm_jax.nn import tiny


@functools.partial(jax.jit, static_argnames=('c', 'method', 'train'))
def _apply(c, p, *args, method=None, train=False, key=None):
  return model_lib.Realm(c).apply(
    {'params': p},
    *args,
    method=method,
    train=train,
    rngs=None if key is None else {'dropout': key},
  )


@pytest.fixture(scope='module')
def config():
  return tiny.config()


@pytest.fixture(scope='module')
def params(config):
  return tiny.params(config)


@pytest.fixture(scope='module')
def batch():
  return tiny.batch()


def _rows(batch, name):
  return [
    batch[f'{name}_{x}'].reshape(tiny.B * tiny.K, -1)
    for x in ('ids', 'mask', 'types')
  ]


def _norm(x, p, eps):
  x = x - x.mean(-1, keepdims=True)
  x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
  return x * p['scale'] + p['bias']


@pytest.mark.parametrize(
  ('pooling', 'fields'),
  [
    ('pooler', {}),
    ('cls', {'projection_norm': False}),
    ('mean', {'projection_size': 0, 'projection_norm_eps': 1e-3}),
  ],
)
def test_vectors_are_pooled_projected_and_normalised(batch, pooling, fields):
  flat = tiny.bert_config(num_layers=0)
  c = tiny.config(pooling=pooling, embedder=flat, **fields)
  p = tiny.params(c)['embedder']
  rows = [x[: tiny.K] for x in _rows(batch, 'candidate')]
  found = jax.jit(model_lib.Embedder(c).apply)({'params': p}, *rows)
  assert found.shape == (tiny.K, c.vector_size) and found.dtype == np.float32
  out = jax.jit(bert.Bert(c.embedder_bert).apply)({'params': p['bert']}, *rows)
  hidden, mask = np.asarray(out.hidden), rows[1][..., None]
  expected = {
    'pooler': out.pooled,
    'cls': hidden[:, 0],
    'mean': (hidden * mask).sum(1) / mask.sum(1),
  }[pooling]
  assert set(p) == {
    'bert',
    *(['projection'] if c.projection_size else []),
    *(['projection_norm'] if c.projection_norm else []),
  }
  if c.projection_size:
    expected = expected @ p['projection']['kernel'] + p['projection']['bias']
  if c.projection_norm:
    norm = p['projection_norm']
    expected = _norm(expected, norm, c.projection_norm_eps)
  np.testing.assert_allclose(found, expected, atol=2e-5)


def test_initial_projections():
  @functools.partial(jax.jit, static_argnames='c')
  def start(c):
    key = jax.random.key(0)
    return nn.unbox(initialize.random_params(key, c, parts='embedder'))

  def embedder(**fields):
    flat = tiny.bert_config(num_layers=0)
    return start(tiny.config(embedder=flat, **fields))['embedder']

  normal = embedder(projection_norm_scale=0.5)
  kernel = np.asarray(normal['projection']['kernel'])
  assert 0 < np.abs(kernel).max() < 0.05
  np.testing.assert_array_equal(normal['projection_norm']['scale'], 0.5)
  same = embedder(projection_init='identity', projection_size=8)
  np.testing.assert_array_equal(same['projection']['kernel'], np.eye(8))


def test_two_embedders_of_equal_weights_are_one(batch):
  flat = tiny.bert_config(num_layers=0)
  one = tiny.config(embedder=flat, encoder=flat)
  two = dataclasses.replace(one, share_embedders=False)
  params = tiny.params(one)
  p = {'encoder': params['encoder']}
  p |= {f'{x}_embedder': params['embedder'] for x in ('query', 'block')}
  other = tiny.params(two, seed=1)
  assert jax.tree.map(np.shape, p) == jax.tree.map(np.shape, other)
  found = _apply(two, p, batch)
  expected = _apply(one, params, batch)
  np.testing.assert_array_equal(found.scores, expected.scores)
  rows = batch['query_ids'], batch['query_mask']
  changed = p | {'block_embedder': other['block_embedder']}
  vectors = [
    _apply(two, x, *rows, method='embed_queries') for x in (p, changed)
  ]
  np.testing.assert_array_equal(*vectors)
  changed = _apply(two, changed, batch)
  assert np.abs(changed.scores - found.scores).min() > 1e-3
  np.testing.assert_array_equal(changed.gold_log_probs, found.gold_log_probs)


def test_large_parameters_are_sharded(config):
  """Eight devices compute the same in tests/experiments/realm/train_test.py."""
  boxed = jax.eval_shape(
    lambda key: initialize.random_params(key, config), jax.random.key(0)
  )
  mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
  placed = sharding.tree_shardings(boxed, mesh, sharding.make_rules())
  for path, where in jax.tree_util.tree_leaves_with_path(placed):
    leaf = path[-1].key
    assert leaf in ('bias', 'scale') or not where.is_fully_replicated, path
