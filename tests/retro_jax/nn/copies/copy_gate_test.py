# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The variant that copies words of neighbors, against the mixture written out."""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from retro_jax.nn import initial
from retro_jax.nn.copies import copy_gate
from tests.retro_jax.nn import tiny
from tests.retro_jax.nn.copies import copy_init_test

CONFIG = tiny.config(copy_gate=True)


def test_the_mixture_is_that_of_the_definition():
  c, rng = CONFIG, np.random.default_rng(0)
  params = tiny.params(c)['copy_gate']
  _, neighbors, mask = tiny.inputs(c)
  batch, chunks, length = len(neighbors), 3, 14
  neighbors, mask = neighbors[:, :chunks], mask[:, :chunks]
  x = rng.standard_normal((batch, length, c.d_model))
  logits = rng.standard_normal((batch, length, c.vocab_size))
  encoded = rng.standard_normal((*neighbors.shape, c.encoder_d_model))
  x32, found, of_neighbors = (
    jnp.asarray(y, jnp.float32) for y in (x, logits, encoded)
  )
  read = of_neighbors, jnp.asarray(neighbors), jnp.asarray(mask), None
  gate = copy_gate.CopyGate(c)
  mixed = gate.apply(
    {'params': params}, x32, found, None, *read, method='in_rows'
  )
  m = c.chunk_length
  for b in range(batch):
    for t in range(length):
      want, u = np.exp(logits[b, t]), (t + 1) // m - 1
      want /= want.sum()
      if u >= 0:
        keys = encoded[b, u][mask[b, u]] @ params['k']
        shares = np.exp(keys @ (x[b, t] @ params['q']) / c.head_dim**0.5)
        copied = np.zeros(c.vocab_size)
        np.add.at(copied, neighbors[b, u][mask[b, u]], shares / shares.sum())
        gate = 1 / (1 + np.exp(-x[b, t] @ params['gate'] - params['bias']))
        want = (1 - gate) * want + gate * copied
      got = np.asarray(jax.nn.softmax(mixed[b, t]))
      np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_nats_are_those_of_the_logits():
  c, params, args = CONFIG, tiny.params(CONFIG), tiny.inputs(CONFIG)
  segment_ids = np.ones(args[0].shape, np.int32)
  segment_ids[0, 8:] = 2
  targets = np.random.default_rng(1).integers(0, c.vocab_size, args[0].shape)
  nats = tiny.apply(
    c, params, *args, segment_ids=segment_ids, targets=targets.astype(np.int32)
  )
  logits = tiny.apply(c, params, *args, segment_ids=segment_ids)
  want = -np.take_along_axis(
    np.asarray(jax.nn.log_softmax(logits)), targets[..., None], -1
  )
  np.testing.assert_allclose(nats, want[..., 0], rtol=1e-5, atol=1e-5)


def test_without_neighbors_nothing_changes():
  c, params = CONFIG, tiny.params(CONFIG)
  tokens, neighbors, mask = tiny.inputs(CONFIG)
  plain = {k: v for k, v in params.items() if k != 'copy_gate'}
  want = tiny.apply(dataclasses.replace(c, copy_gate=False), plain, tokens)
  hidden = tiny.apply(c, params, tokens, neighbors, np.zeros_like(mask))
  np.testing.assert_array_equal(hidden, want)
  np.testing.assert_array_equal(tiny.apply(c, params, tokens), want)


def test_loops_of_layers_compute_the_same():
  params, args = tiny.params(CONFIG), tiny.inputs(CONFIG)
  scanned = dataclasses.replace(CONFIG, layers='scanned')
  np.testing.assert_allclose(
    tiny.apply(scanned, params, *args),
    tiny.apply(CONFIG, params, *args),
    rtol=1e-5,
    atol=1e-5,
  )


def test_gradients_are_finite_where_nothing_is_copied():
  c, params, args = CONFIG, tiny.params(CONFIG), tiny.inputs(CONFIG)
  tokens, neighbors, mask = args
  targets = np.full(tokens.shape, c.vocab_size - 1, np.int32)
  neighbors = np.minimum(neighbors, c.vocab_size - 2)

  def loss(params):
    return tiny.apply(
      c, params, tokens, neighbors, mask, targets=targets
    ).mean()

  grads = jax.grad(loss)(jax.tree.map(jnp.asarray, params))
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads))
  for name in ('gate', 'bias'):
    assert np.abs(grads['copy_gate'][name]).max() > 0


def test_the_start_copies_what_follows_the_last_token():
  c = dataclasses.replace(
    copy_init_test.CONFIG, copy_gate=True, cca_layers=(2,)
  )
  tokens, neighbors = copy_init_test.repeated(0)
  mask = np.ones(neighbors.shape, bool)
  init = jax.jit(initial.flat_params, static_argnums=1)
  params = nn.unbox(init(jax.random.key(0), c))
  logits = tiny.apply(c, params, tokens, neighbors, mask)
  shares = np.asarray(jax.nn.softmax(logits))[
    0, np.arange(32, 62), tokens[0, 33:63]
  ]
  assert np.median(shares) > 0.5 * jax.nn.sigmoid(copy_gate.START)
