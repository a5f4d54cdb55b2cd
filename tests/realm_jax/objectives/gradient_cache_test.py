# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Chunks need less memory, draw the same dropout, and move embeddings alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.objectives import in_batch

ROWS, LENGTH, VOCAB, WIDTH, HIDDEN = 64, 8, 50, 16, 64


def _data():
  rng = np.random.default_rng(0)
  params = {
    'table': rng.standard_normal((VOCAB, WIDTH), np.float32),
    'up': 0.2 * rng.standard_normal((WIDTH, HIDDEN), np.float32),
    'down': 0.1 * rng.standard_normal((HIDDEN, WIDTH), np.float32),
  }
  ids = rng.integers(0, VOCAB, (2, ROWS, LENGTH), np.int32)
  return params, {'query': ids[0], 'block': ids[1]}


def _embed(params, ids, key):
  x = params['table'][ids]
  for layer in range(2):
    hidden = jnp.tanh(x @ params['up'])
    if key is not None:
      hidden *= jax.random.bernoulli(
        jax.random.fold_in(key, layer), 0.5, hidden.shape
      )
    x = x + hidden @ params['down']
  return x.mean(axis=1)


def _loss(params, batch, key=None, *, num_chunks, encode=None):
  """Every query against every block of the batch."""

  def both(batch, key):
    return {name: _embed(params, ids, key) for name, ids in batch.items()}

  encode = encode or functools.partial(
    in_batch.map_chunks, both, num_chunks=num_chunks
  )
  rows = encode(batch, key=key)
  log_probs = jax.nn.log_softmax(rows['query'] @ rows['block'].T)
  return -log_probs.diagonal().mean()


@functools.cache
def _compiled(num_chunks):
  step = jax.value_and_grad(functools.partial(_loss, num_chunks=num_chunks))
  return jax.jit(step).lower(*_data()).compile()


def _assert_same(found, expected):
  pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
  for a, b in pairs:
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_memory_falls_with_chunks():
  used = [
    _compiled(n).memory_analysis().temp_size_in_bytes for n in (1, 2, 4, 16)
  ]
  assert used == sorted(used, reverse=True)
  assert used[-1] < used[0] / 4, used


def test_recomputation_draws_the_same_dropout():
  """Gradients are those of a loop that keeps all it computed."""
  params, batch = _data()
  key, num_chunks = jax.random.key(0), 2

  def loop(params, batch, key):
    parts = []
    for i in range(num_chunks):
      chunk = {name: x[i::num_chunks] for name, x in batch.items()}
      chunk_key = jax.random.fold_in(key, i)
      parts.append(
        {n: _embed(params, ids, chunk_key) for n, ids in chunk.items()}
      )
    return jax.tree.map(
      lambda *x: jnp.stack(x, axis=1).reshape(ROWS, WIDTH), *parts
    )

  def kept(params, batch, key):
    encode = functools.partial(loop, params)
    return _loss(params, batch, key, num_chunks=0, encode=encode)

  cached = functools.partial(_loss, num_chunks=num_chunks)
  found = jax.jit(jax.value_and_grad(cached))(params, batch, key)
  expected = jax.jit(jax.value_and_grad(kept))(params, batch, key)
  _assert_same(found, expected)
  plain = _compiled(1)(params, batch)
  assert float(found[0]) != pytest.approx(float(plain[0]), rel=1e-3)
