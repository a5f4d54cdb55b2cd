# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The TPU's kernels, interpreted here, equal the plain operations."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.nn import sharding
from retro_jax.nn import distances, distances_tpu


def _plain(queries, keys, num_keys):
  by_distance = jnp.einsum('HNQK,HTK->HNQT', queries, keys)
  return distances.shift_to_keys(by_distance, num_keys)


def _arrays(queries, num_keys, width):
  rng = np.random.default_rng(0)
  shapes = (2, 4, queries, 8), (2, width, 8), (2, 4, queries, num_keys)
  return [jnp.asarray(rng.standard_normal(s), jnp.float32) for s in shapes]


@pytest.mark.parametrize('mesh', [None, {'data': 2, 'fsdp': 2, 'tensor': 2}])
@pytest.mark.parametrize('queries', [8, 64, 256])
def test_kernels_equal_plain_operations(queries, mesh):
  q, r, g = _arrays(queries, 128, queries + 128)

  def run(function):
    value, pull = jax.vjp(lambda q, r: function(q, r, 128), q, r)
    return value, *pull(g)

  expected = run(_plain)
  if mesh is None:
    found = run(distances_tpu.logits)
  else:
    rules = sharding.make_rules()
    with jax.set_mesh(sharding.make_mesh(**mesh)), nn.logical_axis_rules(rules):
      assert distances_tpu.suits(q, 128, queries + 128)
      found = jax.jit(lambda: run(distances_tpu.logits))()
  for ours, theirs in zip(found, expected, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_causal_queries_need_one_distance_more_than_keys():
  """Only keys after their query wrap around, and their gradients are 0."""
  q, r, g = _arrays(64, 128, 129)
  seen = np.arange(128) <= np.arange(64, 128)[:, None]
  g = g * seen
  ours, pull = jax.vjp(lambda q, r: distances_tpu.logits(q, r, 128), q, r)
  theirs, plain_pull = jax.vjp(lambda q, r: _plain(q, r, 128), q, r)
  close = {'rtol': 1e-4, 'atol': 1e-4}
  np.testing.assert_allclose(ours[..., seen], theirs[..., seen], **close)
  for a, b in zip(pull(g), plain_pull(g), strict=True):
    np.testing.assert_allclose(a, b, **close)


def test_forward_mode():
  q, r, _ = _arrays(8, 128, 136)
  _, ours = jax.jvp(lambda q: distances_tpu.logits(q, r, 128), (q,), (q,))
  np.testing.assert_allclose(ours, _plain(q, r, 128), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(('queries', 'keys'), [(12, 128), (64, 64), (130, 128)])
def test_other_sizes_are_left_to_plain_operations(queries, keys):
  q, _, _ = _arrays(queries, keys, queries + keys)
  assert not distances_tpu.suits(q, keys, queries + keys)
