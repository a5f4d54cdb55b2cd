# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The RETRO of one file is the library's, and reads nothing that comes later."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.nano import retro as nano
from retro_jax.nn import losses, retro
from tests.retro_jax.nn import tiny

C = nano.Config(vocab_size=23, chunk=4, width=12, heads=2, layers=3)
_LEFT_OUT = ('attention', 'cca', 'scale')


def _library():
  return tiny.config(
    neighbor_length=8,
    encoder_d_model=12,
    share_embeddings=True,
    encoder_num_heads=2,
    encoder_head_dim=6,
    encoder_num_layers=1,
    position_base=C.position_base,
    dtype='float64',
    param_dtype='float64',
  )


def _named(params):
  """The library's parameters by the names of the file: three levels go."""
  found = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    *path, name = [x.key for x in path if x.key not in _LEFT_OUT]
    place = found
    for key in path:
      place = place.setdefault(key, {})
    place[name] = leaf
  return found


def _row(seed=0):
  tokens, neighbors, mask = tiny.inputs(_library(), length=14, chunks=3)
  targets = np.roll(tokens, -1, axis=1)
  return {
    'tokens': tokens,
    'targets': targets,
    'neighbors': np.where(mask, neighbors, 0),
  }


def test_loss_and_gradients_are_the_library_s():
  row = _row()
  batch = row | {
    'segment_ids': None,
    'neighbor_mask': row['neighbors'] > 0,
    'loss_mask': row['targets'] > 0,
  }
  with jax.enable_x64(True):
    batch = jax.tree.map(jnp.asarray, batch)
    params, model = tiny.params(_library()), retro.Retro(_library())

    def of_library(params):
      return losses.loss(model, params, batch, jax.random.key(0), False)[
        0
      ].value

    wanted, wanted_grads = jax.jit(jax.value_and_grad(of_library))(params)
    found = jax.jit(jax.value_and_grad(lambda p: nano.loss(p, row, C)))
    value, grads = found(_named(params))
    np.testing.assert_allclose(value, wanted, rtol=1e-10)
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10),
      grads,
      _named(wanted_grads),
    )


def test_initial_parameters_are_the_library_s():
  c = nano.Config(vocab_size=30, width=16, heads=2)
  other = tiny.config(
    vocab_size=30,
    d_model=16,
    d_ff=64,
    num_heads=2,
    head_dim=8,
    cca_layers=c.cca,
    num_layers=c.layers,
    encoder_d_model=16,
    encoder_d_ff=64,
    encoder_num_heads=2,
    encoder_head_dim=8,
    encoder_num_layers=1,
    share_embeddings=True,
  )
  shapes = jax.eval_shape(lambda: nano.init(jax.random.key(0), c))
  wanted = _named(tiny._shapes(other))
  assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, wanted)


def test_nothing_later_is_read():
  """By gradient: token t + 1 is predicted from tokens and neighbors up to t."""
  row, params = _row(), _named(tiny.params(_library()))
  mask = row['neighbors'] > 0

  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1))
  def gradients(x, neighbors, t):
    return nano.decode(params, x, neighbors, mask, C)[:, t, 0].sum()

  x, neighbors = (
    params['embedding'][row['tokens']],
    params['embedding'][row['neighbors']],
  )
  for t in (2, 3, 9, 12):
    of_tokens, of_neighbors = gradients(x, neighbors, t)
    complete = (t + 1) // C.chunk
    assert not of_tokens[:, t + 1 :].any() and of_tokens[:, t].any()
    assert not of_neighbors[:, complete:].any()
    assert of_neighbors[:, :complete].any() == (complete > 0)
