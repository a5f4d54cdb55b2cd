# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The REALM of one file is the library's."""

from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from experiments.nano import realm as nano
from realm_jax.nn import realm
from realm_jax.objectives import losses
from retrieval.nn import bert
from tests.realm_jax.nn import tiny

SIZES = {'vocab_size': tiny.V, 'width': 8, 'heads': 2, 'embedder_layers': 2}
C = nano.Config(query=tiny.Q, block=tiny.J, joint=tiny.J, **SIZES)


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

  def short(path):
    pairs = zip(path, ['', *path], strict=False)
    kept = [x for x, y in pairs if x != 'norm' or not y.endswith('norm')]
    return tuple(x for x in kept if x not in ('embedding', 'embeddings'))

  flat = traverse_util.flatten_dict(params).items()
  return traverse_util.unflatten_dict({short(x): leaf for x, leaf in flat})


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
  names = (
    'query_ids',
    'candidate_ids',
    'joint_ids',
    'mlm_positions',
    'mlm_targets',
  )
  own = zip(
    ('query', 'candidates', 'joint', 'at', 'targets'), names, strict=True
  )
  own = {name: batch[of] for name, of in own}

  def of_library(p):
    model, settings = realm.Realm(_library()), {'objective': 'marginal_seq'}
    found = losses.loss(model, p, batch, jax.random.key(0), False, **settings)
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
  begun = jax.eval_shape(lambda: nano.init(jax.random.key(0), C))
  assert jax.tree.map(jnp.shape, begun) == jax.tree.map(jnp.shape, grads)
