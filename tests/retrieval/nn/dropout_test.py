# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Dropout keeps its share, everywhere alike, and the mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.nn import dropout


@pytest.mark.parametrize('rate', [0.0, 0.1, 0.5, 0.999])
@pytest.mark.parametrize('last', [64, 63])
def test_keeps_its_share_in_every_column(rate, last):
  rows = 20_000
  mask = dropout.keep_mask(jax.random.key(0), rate, (rows, last))
  assert (mask.shape, mask.dtype) == ((rows, last), bool)
  share = np.asarray(mask).mean(axis=0)
  deviation = (rate * (1 - rate) / rows) ** 0.5
  assert np.abs(share - (1 - rate)).max() <= 5 * deviation + 2**-16


def test_halves_of_one_draw_are_independent():
  mask = dropout.keep_mask(jax.random.key(1), 0.5, (40_000, 2))
  low, high = np.asarray(mask).T
  assert abs((low == high).mean() - 0.5) < 0.0125  # five deviations


def test_module_scales_what_it_keeps():
  x = jnp.ones((100, 1000))
  module = dropout.Dropout(0.25)

  def apply(x):
    return module.apply({}, x, True, rngs={'dropout': jax.random.key(2)})

  y = apply(x)
  assert set(np.unique(y).tolist()) == {0, np.float32(4 / 3)}
  assert float(y.mean()) == pytest.approx(1, abs=0.01)
  np.testing.assert_array_equal(module.apply({}, x, False), x)
  np.testing.assert_array_equal(jax.grad(lambda x: apply(x).sum())(x), y)
