# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The REALM of one file is the library's."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.nano import realm as nano
from realm_jax.nn import realm
from realm_jax.objectives import losses
from retrieval.nn import bert
from tests.realm_jax.nn import tiny

C = nano.Config(
  vocab_size=tiny.V,
  width=8,
  heads=2,
  query=tiny.Q,
  block=tiny.J,
  joint=tiny.J,
  embedder_layers=2,
  encoder_layers=2,
)


def _library():
  sizes = {'d_ff': 32, 'num_layers': 2}
  return tiny.config(
    embedder=tiny.bert_config(**sizes),
    encoder=tiny.bert_config(**sizes),
    pooling='mean',
    projection_size=8,
    projection_norm=False,
  )


def _named(params):
  """The library's parameters by the names of the file: three levels go."""
  found = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    keys = [x.key for x in path]
    kept = [
      key
      for key, before in zip(keys, ['', *keys], strict=False)
      if not (key == 'norm' and before.endswith('norm'))
      and key not in ('embedding', 'embeddings')
    ]
    place = found
    for key in kept[:-1]:
      place = place.setdefault(key, {})
    place[kept[-1]] = leaf
  return found


def _batch():
  """Rows of tokens, 0 after their ends; those of documents have two parts."""
  batch = tiny.batch() | {'candidate_valid': np.ones((tiny.B, tiny.K), bool)}
  batch['mlm_targets'] = np.where(batch['mlm_mask'], batch['mlm_targets'], 0)
  for name in ('query', 'candidate', 'joint'):
    mask = batch[f'{name}_mask']
    ids = np.where(mask, np.maximum(batch[f'{name}_ids'], 4), 0)
    if name != 'query':
      ids[..., 1] = nano.SEP
    batch[f'{name}_ids'] = ids
    rows = ids.reshape(-1, ids.shape[-1]), mask.sum(axis=-1).reshape(-1)
    _, types = bert.segments(*map(jnp.asarray, rows), nano.SEP)
    batch[f'{name}_types'] = np.asarray(types).reshape(ids.shape)
  return jax.tree.map(jnp.asarray, batch)


def test_loss_and_gradients_are_the_library_s():
  """In float32, in which the library's scores are."""
  batch = _batch()
  params = jax.tree.map(lambda x: 0.4 * x, tiny.params(_library()))
  own = {
    'query': batch['query_ids'],
    'candidates': batch['candidate_ids'],
    'joint': batch['joint_ids'],
    'at': batch['mlm_positions'],
    'targets': batch['mlm_targets'],
  }

  def of_library(params):
    model, key = realm.Realm(_library()), jax.random.key(0)
    found = losses.loss(
      model, params, batch, key, False, objective='marginal_seq'
    )
    return found[0].value

  wanted, wanted_grads = jax.jit(jax.value_and_grad(of_library))(params)
  found = jax.jit(jax.value_and_grad(lambda p: nano.loss(p, own, C)))
  value, grads = found(_named(params))
  np.testing.assert_allclose(value, wanted, rtol=1e-6)
  largest = max(abs(x).max() for x in jax.tree.leaves(wanted_grads))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * largest),
    grads,
    _named(wanted_grads),
  )


def test_initial_parameters_are_the_library_s():
  shapes = jax.eval_shape(lambda: nano.init(jax.random.key(0), C))
  wanted = _named(tiny.params(_library()))
  assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, wanted)
