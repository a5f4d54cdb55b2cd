# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Decoders that are not the paper's: what their fields must be, and what they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import positions
from tests.retro_jax.nn import tiny


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'num_kv_heads': 3}, 'num_kv_heads=3; expected .* num_heads=2'),
    ({'positions': 'rotary'}, 'odd head_dim=5'),
    ({'positions': 'absolute'}, "'absolute' with max_positions=0"),
    ({'max_positions': 9}, "'relative' with max_positions=9"),
  ],
)
def test_fields_that_do_not_fit_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    tiny.config(**fields)


def test_other_positions_are_those_of_self_attention_alone():
  c = tiny.config(**tiny.LLAMA)
  own, cross = c.decoder_attention(), c.decoder_attention(cross=True)
  assert own.rotary_base == 50 and own.num_kv_heads == 2
  assert not own.relative_positions and not own.position_biases
  for paper in (cross, c.encoder_attention(), c.encoder_attention(cross=True)):
    assert not paper.rotary_base and not paper.num_kv_heads
    assert paper.relative_positions and paper.position_biases


def test_positions_in_documents():
  rows = jnp.array(
    [[0, 0, 1, 1, 1, 2, 2, 0], [1] * 8, [7, 7, 7, 7, 1, 1, 1, 1]]
  )
  expected = [[0, 1, 0, 1, 2, 0, 1, 0], list(range(8)), [0, 1, 2, 3] * 2]
  np.testing.assert_array_equal(positions.in_documents(rows), expected)


def test_products_of_turned_vectors_depend_on_distance():
  x, y = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 6))

  def product(i, j):
    at_i, at_j = jnp.array([[[i]], [[j]]], jnp.int32)
    turned = positions.rotate(x, at_i, 100.0), positions.rotate(y, at_j, 100.0)
    return float(jnp.vdot(*turned))

  assert product(7, 4) == pytest.approx(product(103, 100), abs=1e-4)
  assert product(7, 4) != pytest.approx(product(4, 7), abs=1e-2)
  assert product(5, 5) == pytest.approx(float(jnp.vdot(x, y)), abs=1e-5)
