# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels of TPUs and GPUs, interpreted here, equal softmax and product."""

from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
import numpy as np
import pytest

from retrieval.kernels import backend, fused_attention
from retrieval.nn import sharding

_MESH = {'data': 2, 'fsdp': 2, 'tensor': 2}
_HEADS, _ROWS, _WIDTH = 2, 4, 8
# Query copies, queries, key copies, keys, relative keys (0: no positions), causal.
_CASES = {
  'causal': (1, 300, 1, 300, 301, True),
  'causal, two blocks of keys': (1, 640, 1, 640, 640, True),
  'causal, few queries': (1, 8, 1, 8, 8, True),
  'causal, no positions': (1, 256, 1, 256, 0, True),
  'chunk to neighbors': (1, 64, 2, 128, 192, False),
  'neighbors to chunk': (2, 128, 1, 64, 192, False),
  'no positions': (1, 300, 1, 700, 0, False),
}


@pytest.fixture(params=['tpu', 'gpu'])
def kind(request, monkeypatch):
  """The kind of backend that is pretended."""
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  monkeypatch.setattr(backend, 'is_tpu', lambda: request.param == 'tpu')
  return request.param


def _arrays(case):
  """Arrays and segments of a case, drawn with a fixed seed."""
  copies, num_queries, key_copies, num_keys, distances, causal = _CASES[case]
  rng = np.random.default_rng(0)

  def draw(*shape):
    return jnp.asarray(rng.standard_normal((_HEADS, *shape)), jnp.float32)

  rows, total = _ROWS * copies, num_keys * key_copies
  queries = draw(rows, num_queries, _WIDTH)
  keys, values = (draw(_ROWS, total, _WIDTH) for _ in range(2))
  arrays = [queries, keys, values]
  if distances:
    arrays += [draw(rows, num_queries, _WIDTH), draw(distances, _WIDTH)]
  if causal:
    documents = np.sort(rng.integers(0, 3, (rows, num_queries)), axis=1)
    segments = documents, documents
  else:
    there = rng.random((_ROWS, total)) < 0.7
    there[0] = False
    segments = np.ones((rows, num_queries)), there
  return arrays, [jnp.asarray(x, jnp.int32) for x in segments]


def _fused(case, segments):
  *_, key_length, distances, causal = _CASES[case]

  def attend(q, k, v, *positions):
    return fused_attention.attend(
      q,
      k,
      v,
      *segments,
      positions=positions if distances else None,
      causal=causal,
      key_length=key_length,
    )

  return attend


def _plain(case, segments):
  copies, num_queries, _, key_length, _, causal = _CASES[case]

  def attend(q, k, v, *positions):
    k, v = (jnp.repeat(x, copies, axis=1) for x in (k, v))
    key_segments = jnp.repeat(segments[1], copies, axis=0)
    logits = jnp.einsum('HNQK,HNSK->HNQS', q, k)
    i, j = np.arange(num_queries)[:, None], np.arange(k.shape[2])
    if positions:
      # Keys after a causal query may have no relative key.
      place = num_queries - 1 - i + j % key_length
      place = np.minimum(place, positions[1].shape[1] - 1)
      by_distance = jnp.einsum('HNQK,HTK->HNQT', *positions)
      logits += jnp.take_along_axis(by_distance, place[None, None], axis=-1)
    seen = segments[0][:, :, None] == key_segments[:, None]
    if causal:
      seen &= i >= j
    shares = jax.nn.softmax(jnp.where(seen, logits, -1e30), axis=-1)
    return jnp.where(seen, shares, 0) @ v

  return attend


def _close(ours, theirs):
  for a, b in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('case', _CASES)
def test_equals_softmax_and_product(case, kind):
  arrays, segments = _arrays(case)
  g = jnp.cos(arrays[0])

  def run(function):
    value, pull = jax.vjp(function, *arrays)
    return value, *pull(g)

  ours, expected = (run(f(case, segments)) for f in (_fused, _plain))
  _close(ours, expected)


@pytest.mark.parametrize('case', ['causal, few queries', 'neighbors to chunk'])
def test_eight_devices_equal_one(case, kind):
  arrays, segments = _arrays(case)

  def gradients(*arrays):
    fused = _fused(case, segments)
    return jax.grad(lambda *a: jnp.sin(fused(*a)).sum(), range(5))(*arrays)

  alone = gradients(*arrays)
  rules = sharding.make_rules()
  with jax.set_mesh(sharding.make_mesh(**_MESH)), nn.logical_axis_rules(rules):
    suits = fused_attention.suits
    assert suits(arrays[0].shape, arrays[1].shape, 64, 'float32')
    assert not suits((2, 3, 8, 8), (2, 3, 8, 8), 8, 'float32')
    together = jax.jit(gradients)(*arrays)
  _close(together, alone)


def test_inside_a_mapped_program(kind):
  case = 'causal, few queries'
  arrays, segments = _arrays(case)
  by_rows, shared = [*arrays[:4], *segments], arrays[4]

  def attend(queries, keys, values, with_w, own, other):
    fused = _fused(case, [own, other])
    return fused(queries, keys, values, with_w, shared)

  rows = [P(None, 'data')] * 4 + [P('data')] * 2
  mesh = jax.make_mesh(
    (4,), ('data',), axis_types=(AxisType.Auto,), devices=jax.devices()[:4]
  )
  mapped = jax.shard_map(
    attend,
    mesh=mesh,
    in_specs=tuple(rows),
    out_specs=P(None, 'data'),
    check_vma=False,
  )
  _close([jax.jit(mapped)(*by_rows)], [attend(*by_rows)])


def test_what_no_kernel_takes_is_left_alone(kind):
  def suits(length, dtype='bfloat16', width=128):
    shape = 2, 4, length, width
    return fused_attention.suits(shape, shape, length, dtype)

  assert suits(2048)
  assert suits(8192) == (kind == 'gpu')  # TPUs hold all keys in vector memory
  assert suits(64, width=512) == (kind == 'tpu')  # GPUs lack room for a block
  assert not suits(2048, 'float64')
