# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Repetition against a slow definition; attention and gains by their properties."""

import jax
import numpy as np
import pytest

from retro_jax.evaluation import attribution
from retro_jax.nn import losses, retro as model_lib
from tests.retro_jax.nn import tiny

M = 4


def _row(c, *, batch=1, length=16, vocab_size=None, seed=0):
  """Rows of two documents; the second starts at chunk 2 and its last token is padding."""
  tokens, neighbors, mask = tiny.inputs(
    c, batch=batch, length=length, seed=seed
  )
  if vocab_size:
    tokens, neighbors = tokens % vocab_size, neighbors % vocab_size
  segments = np.repeat([[1, 1, 2, 2]], batch, axis=0).repeat(M, axis=1)
  segments[:, -1] = 0
  return {
    'tokens': tokens,
    'targets': np.roll(tokens, -1, axis=1),
    'loss_mask': segments > 0,
    'segment_ids': segments.astype(np.int32),
    'neighbors': neighbors,
    'neighbor_mask': mask,
  }


def _slow_repeated(row):
  tokens, segments = row['tokens'], row['segment_ids']
  out = np.zeros(tokens.shape, int)
  for b, t in np.ndindex(*tokens.shape):
    u = t // M - 1
    if u < 0 or not segments[b, t]:
      continue
    if segments[b, t] != segments[b, u * M + M - 1]:
      continue
    for n in range(row['neighbors'].shape[2]):
      kept = row['neighbor_mask'][b, u, n]
      stream = [
        int(x) if keep else -1
        for x, keep in zip(row['neighbors'][b, u, n], kept, strict=True)
      ]
      for size in range(1, t + 2):
        run = tokens[b, t - size + 1 : t + 1].tolist()
        if segments[b, t - size + 1] != segments[b, t]:
          break
        if any(stream[i : i + size] == run for i in range(len(stream))):
          out[b, t] = max(out[b, t], size)
  return out


@pytest.mark.parametrize('seed', range(2))
def test_repeated_is_its_definition(seed):
  row = _row(tiny.config(), batch=3, vocab_size=2, seed=seed)
  row['neighbor_mask'][0, 0, 0] = True
  row['neighbors'][0, 0, 0] = row['tokens'][0, 1:8]
  found = attribution.repeated(row, M)
  np.testing.assert_array_equal(found, _slow_repeated(row))
  assert found[0, 7] == 7  # a run goes on over the chunk's start


@pytest.fixture(scope='module')
def trained():
  c = tiny.config()
  return model_lib.Retro(c), tiny.params(c)


def test_attention_is_shared_between_what_is_there(trained):
  model, params = trained
  row = _row(model.config)
  row['neighbor_mask'][:] = True
  row['neighbors'][:, 1, 1] = row['neighbors'][:, 1, 0]
  row['neighbor_mask'][:, 2, 0] = False
  shares = attribution.attention_shares(model, params, row)
  assert shares.shape == (2, 1, 4, 2)
  # Chunk 1 ends its document, but for its own last token.
  np.testing.assert_allclose(shares[:, :, :3].sum(-1), 1, rtol=1e-5)
  np.testing.assert_allclose(shares[:, 0, 1], 0.5, rtol=1e-4)
  np.testing.assert_array_equal(shares[:, 0, 2], [[0, 1], [0, 1]])
  np.testing.assert_array_equal(shares[:, 0, 3], 0)  # read by no token
  assert np.abs(shares[:, 0, 0] - 0.5).min() > 1e-3


def test_gains_are_differences_of_losses(trained):
  model, params = trained
  nll = jax.jit(losses.batch_nll, static_argnames='model')
  calls = []

  def token_nats(row):
    calls.append(row['tokens'].shape[0])
    return nll(model, params, row)

  row = _row(model.config, seed=1)
  row['neighbor_mask'][:] = True
  row['neighbor_mask'][:, 0, 1] = False
  gains = attribution.gains(token_nats, row, M, batch_size=3)
  assert calls == [1, 3, 3, 3]
  assert gains[0, 1] == 0 and not gains[3].any()
  whole = np.asarray(nll(model, params, row))[0]
  for c, n in [(0, 0), (1, 0), (1, 1), (2, 1)]:
    other = dict(row, neighbor_mask=row['neighbor_mask'].copy())
    other['neighbor_mask'][0, c, n] = False
    nats = np.asarray(nll(model, params, other))[0]
    span = slice((c + 1) * M - 1, (c + 2) * M - 1)
    np.testing.assert_allclose(
      gains[c, n], (nats - whole)[span].sum(), rtol=1e-4, atol=1e-5
    )
    assert abs(gains[c, n]) > 1e-3
