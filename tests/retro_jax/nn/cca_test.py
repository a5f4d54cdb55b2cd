# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attending chunks: the closed form, token by token."""

import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import cca


@pytest.mark.parametrize('length', [4, 7, 8, 11, 12, 13])
def test_attending_chunks_follow_the_closed_form(length):
  m = 4
  chunks = length // m
  x = np.arange(1, length + 1)[None, :, None]
  attending = cca.attending_chunks(jnp.asarray(x), m, chunks)
  assert attending.shape == (1, chunks, m, 1)
  for t in range(length):
    u, i = (t + 1) // m - 1, (t + 1) % m
    if u >= 0:
      assert attending[0, u, i, 0] == t + 1
  placed = np.asarray(attending)[attending > 0]
  np.testing.assert_array_equal(placed, np.arange(m, length + 1))


@pytest.mark.parametrize('length', [4, 7, 8, 11, 12, 13])
def test_to_tokens_undoes_attending_chunks(length):
  m = 4
  x = np.random.default_rng(0).standard_normal((2, length, 3))
  attending = cca.attending_chunks(jnp.asarray(x), m, length // m)
  out = cca.to_tokens(attending, length)
  expected = x.copy()
  expected[:, : m - 1] = 0
  np.testing.assert_allclose(out, expected, rtol=1e-6)
