# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The RETRO of one file is the library's, and reads nothing that comes later."""

import functools

from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from experiments.nano import retro as nano
from retro_jax.nn import losses, retro
from tests.retro_jax.nn import tiny

C = nano.Config(vocab_size=23, chunk=4, width=12, heads=2, layers=3)
_SIZES = {'head_dim': 6, 'd_ff': 48, 'encoder_d_ff': 48, 'encoder_d_model': 12}
_SIZES |= {'encoder_num_heads': 2, 'encoder_head_dim': 6}
LIBRARY = tiny.config(
  neighbor_length=8,
  share_embeddings=True,
  encoder_num_layers=1,
  position_base=C.position_base,
  dtype='float64',
  param_dtype='float64',
  **_SIZES,
)


def _named(params):
  """The library's parameters by the names of the file: three levels go."""
  flat = traverse_util.flatten_dict(params).items()
  gone = 'attention', 'cca', 'scale'
  return traverse_util.unflatten_dict(
    {tuple(x for x in path if x not in gone): leaf for path, leaf in flat}
  )


def _row():
  tokens, found, mask = tiny.inputs(LIBRARY, length=14, chunks=3)
  row = {'tokens': tokens, 'targets': np.roll(tokens, -1, axis=1)}
  return row | {'neighbors': np.where(mask, found, 0)}


def test_loss_and_gradients_are_the_library_s():
  row = _row()
  masks = row['neighbors'] > 0, row['targets'] > 0
  batch = row | dict(zip(('neighbor_mask', 'loss_mask'), masks, strict=True))
  with jax.enable_x64(True):
    batch = jax.tree.map(jnp.asarray, batch) | {'segment_ids': None}
    params = tiny.params(LIBRARY)
    model, key = retro.Retro(LIBRARY), jax.random.key(0)
    of_library = lambda p: losses.loss(model, p, batch, key, False)[0].value  # noqa: E731
    wanted = jax.jit(jax.value_and_grad(of_library))(params)
    found = jax.jit(jax.value_and_grad(lambda p: nano.loss(p, row, C)))
    value, grads = found(_named(params))
    np.testing.assert_allclose(value, wanted[0], rtol=1e-10)
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-10),
      grads,
      _named(wanted[1]),
    )
  begun = jax.eval_shape(lambda: nano.init(jax.random.key(0), C))
  assert jax.tree.map(jnp.shape, begun) == jax.tree.map(jnp.shape, grads)


def test_nothing_later_is_read():
  """By gradient: token t + 1 is predicted from tokens and neighbors up to t."""
  row, params = _row(), _named(tiny.params(LIBRARY))
  mask = row['neighbors'] > 0

  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1))
  def gradients(x, neighbors, t):
    return nano.decode(params, x, neighbors, mask, C)[:, t, 0].sum()

  x, neighbors = (params['embedding'][row[y]] for y in ('tokens', 'neighbors'))
  for t in (2, 3, 9, 12):
    of_tokens, of_neighbors = gradients(x, neighbors, t)
    complete = (t + 1) // C.chunk
    assert not of_tokens[:, t + 1 :].any() and of_tokens[:, t].any()
    assert not of_neighbors[:, complete:].any()
    assert of_neighbors[:, :complete].any() == (complete > 0)
