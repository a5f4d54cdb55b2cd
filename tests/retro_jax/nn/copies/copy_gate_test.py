# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The variant that copies words of neighbors, against the mixture written out."""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import initial, retro, retrofit
from retro_jax.nn.copies import copy_gate
from tests.retro_jax.nn import tiny
from tests.retro_jax.nn.copies import copy_init_test

CONFIG = tiny.config(copy_gate=True)


def _gate_of(c, params, args, **settings):
  """g [A, T], the weights [A, T, S] and the readout's logits [B, L, V] without it."""
  found = {}

  class Spy(copy_gate.CopyGate):
    def _mix(self, x, logits, keys, tokens, mask, targets=None):
      found['gate'], found['weights'] = self._attend(x, keys, mask)
      return logits

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(copy_gate, 'CopyGate', Spy)
    params, args = jax.tree.map(jnp.asarray, (params, tuple(args)))
    logits = retro.Retro(c).apply({'params': params}, *args, **settings)
  return found['gate'], found['weights'], logits


def test_the_mixture_is_that_of_the_definition():
  c, params, args = CONFIG, tiny.params(CONFIG), tiny.inputs(CONFIG)
  tokens, neighbors, _ = args
  gate, weights, logits = _gate_of(c, params, args)
  mixed = np.asarray(tiny.apply(c, params, *args))
  m = c.chunk_length
  chunks = tokens.shape[1] // m
  gate = np.asarray(gate).reshape(len(tokens), chunks, m)
  weights = np.asarray(weights).reshape(len(tokens), chunks, m, -1)
  plain = np.asarray(jax.nn.softmax(logits))
  assert 0.01 < gate.max() < 0.99
  for b in range(len(tokens)):
    for t in range(tokens.shape[1]):
      want, u, i = plain[b, t], (t + 1) // m - 1, (t + 1) % m
      if u >= 0:
        copied = np.zeros(c.vocab_size)
        np.add.at(copied, neighbors[b, u].ravel(), weights[b, u, i])
        assert copied.sum() == pytest.approx(1, abs=1e-5)
        want = (1 - gate[b, u, i]) * want + gate[b, u, i] * copied
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


def test_a_token_copies_of_its_own_chunk_alone():
  c, params, args = CONFIG, tiny.params(CONFIG), tiny.inputs(CONFIG)
  tokens, neighbors, mask = args
  changed = neighbors.copy()
  changed[:, 1] = (changed[:, 1] + 1) % c.vocab_size
  before = np.asarray(tiny.apply(c, params, tokens, neighbors, mask))
  after = np.asarray(tiny.apply(c, params, tokens, changed, mask))
  m = c.chunk_length
  np.testing.assert_array_equal(after[:, : 2 * m - 1], before[:, : 2 * m - 1])
  assert (after[:, 2 * m - 1] != before[:, 2 * m - 1]).any(-1).all()


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


def test_the_start_attends_to_what_follows_the_last_token():
  c = dataclasses.replace(copy_init_test.CONFIG, copy_gate=True)
  rng = np.random.default_rng(0)
  tokens = rng.permutation(300)[:64][None].astype(np.int32)
  neighbors = rng.integers(0, 300, (1, 2, 2, 64), np.int32)
  neighbors[0, 0, 1, 17:49] = tokens[0, 32:]
  mask = np.ones(neighbors.shape, bool)
  params = nn.unbox(initial.flat_params(jax.random.key(0), c))
  gate, weights, _ = _gate_of(c, params, (tokens, neighbors, mask))
  m = c.chunk_length
  np.testing.assert_allclose(
    np.asarray(gate)[0], jax.nn.sigmoid(copy_gate.START), rtol=1e-3
  )
  # Token 32 + i is number i + 1 of the attending chunk; its successor is 18 + i.
  follow = 64 + 18 + np.arange(m - 2)
  right = np.asarray(weights)[0, np.arange(1, m - 1), follow]
  assert np.median(right) > 0.5  # 1 / 128 is chance


def test_retrofit_trains_it():
  assert retrofit.is_added('copy_gate')
