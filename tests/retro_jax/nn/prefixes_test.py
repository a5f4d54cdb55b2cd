# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Candidates before the text, against the model on each text by itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import losses, prefixes, retro
from tests.retro_jax.nn import tiny

B, C, K = 2, 3, 2


@pytest.mark.parametrize('kind', [{}, tiny.LLAMA], ids=['paper', 'llama'])
def test_equals_the_model_on_prefix_and_text(kind):
  config = tiny.config(num_layers=1, cca_layers=(), **kind)
  model, m, r = retro.Retro(config), config.chunk_length, config.neighbor_length
  params = tiny.params(config)
  tokens, neighbors, _ = tiny.inputs(
    config, batch=B, length=C * m, neighbors=K, chunks=C
  )
  kept = np.random.default_rng(0).integers(0, r + 1, (B, C, K, 1))
  kept[0, 1, 0] = r
  rng = np.random.default_rng(1)
  batch = {
    'tokens': tokens,
    'targets': rng.integers(0, config.vocab_size, tokens.shape, np.int32),
    'neighbors': neighbors,
    'neighbor_mask': np.arange(r) < kept,
    'asked': np.array([[1, 0], [0, -1]], np.int32),
  }
  found = jax.jit(functools.partial(prefixes.gold_log_probs, model))(
    params, batch
  )
  assert found.shape == (B, 2, K + 1, m)
  score = jax.jit(functools.partial(losses.batch_nll, model))
  for b, q in ((0, 0), (0, 1), (1, 0)):
    u = batch['asked'][b, q]
    span = slice(u * m, u * m + 2 * m)
    for k in range(K + 1):
      prefix = neighbors[b, u, k, : kept[b, u, k, 0]] if k < K else []
      # Padding on the right does not act on what stands before it.
      row = np.zeros((1, r + 2 * m), np.int32)
      targets, there = np.zeros_like(row), np.zeros_like(row)
      text = np.r_[prefix, tokens[b, span]]
      row[0, : len(text)], there[0, : len(text)] = text, 1
      targets[0, len(prefix) : len(text)] = batch['targets'][b, span]
      alone = {
        'tokens': row,
        'targets': targets,
        'segment_ids': there,
        'loss_mask': there > 0,
      }
      nll = np.asarray(score(params, alone))[0]
      first = len(prefix) + m - 1
      np.testing.assert_allclose(
        found[b, q, k], -nll[first : first + m], atol=2e-5
      )


def test_tokens_that_count_move_to_the_end():
  tokens = np.array([[5, 6, 7, 0], [8, 9, 1, 2], [0, 0, 0, 0]])
  mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
  moved, there = prefixes.right_aligned(jnp.asarray(tokens), jnp.asarray(mask))
  np.testing.assert_array_equal(there.sum(1), [3, 4, 0])
  assert moved[0, 1:].tolist() == [5, 6, 7] and there[0, 1:].all()
  assert moved[1].tolist() == tokens[1].tolist()
