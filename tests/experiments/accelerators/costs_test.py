# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Products are counted as often as they run."""

import contextlib

from flax import linen as nn
import jax
import jax.numpy as jnp
import pytest

from experiments.accelerators import costs
from retrieval.kernels import (
  backend,
  fused_attention,
  products,
)
from retrieval.nn import sharding

_A, _B = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((4, 8), (8, 6)))
_ONE = 2 * 4 * 8 * 6


def _flops(function, *args):
  jaxpr = jax.make_jaxpr(function)(*args).jaxpr
  return costs.flops([*costs.products(jaxpr)])


def test_products_inside_loops_and_branches():
  def loop(a, b):
    return jax.lax.scan(lambda c, _: (c, jnp.sum(a @ b)), 0, length=5)

  def branch(a, b):
    return jax.lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: (a @ b) @ (b.T @ b))

  assert _flops(lambda a, b: a @ b, _A, _B) == _ONE
  assert _flops(loop, _A, _B) == 5 * _ONE
  assert _flops(branch, _A, _B) == _ONE + 2 * 6 * 8 * 6 + 2 * 4 * 6 * 6
  assert _flops(jax.jit(loop), _A, _B) == 5 * _ONE


def test_a_product_with_its_own_transpose_counts_once(monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)

  def loss(q, k):
    return products.scores(q, k).sum()

  q, k = (jax.ShapeDtypeStruct((n, 8), jnp.bfloat16) for n in (3, 5))
  assert _flops(jax.grad(loss, (0, 1)), q, k) == pytest.approx(
    3 * 2 * 3 * 5 * 8
  )


@pytest.mark.parametrize('mesh', [None, {'data': 2, 'fsdp': 2, 'tensor': 2}])
@pytest.mark.parametrize('kind', ['tpu', 'gpu'])
def test_kernels_count_on_all_blocks_and_devices(kind, mesh, monkeypatch):
  monkeypatch.setattr(backend, 'is_tpu', lambda: kind == 'tpu')
  q = jax.ShapeDtypeStruct((2, 4, 1024, 8), jnp.bfloat16)
  segments = jax.ShapeDtypeStruct((4, 1024), jnp.int32)

  def attend(q, segments):
    return fused_attention.attend(q, q, q, segments, segments, causal=True)

  with contextlib.ExitStack() as stack:
    if mesh:
      stack.enter_context(jax.set_mesh(sharding.make_mesh(**mesh)))
      stack.enter_context(nn.logical_axis_rules(sharding.make_rules()))
    found = _flops(attend, q, segments)
  if kind == 'tpu':  # 4 blocks of 128 queries see 512 keys, and 4 see 1,024
    pairs, width = 4 * 128 * (512 + 1024), 8
  else:  # blocks of 128 queries see 128, 256, ... keys; heads are padded
    pairs, width = 128 * 128 * sum(range(1, 9)), 16
  assert found == 2 * 2 * 2 * 4 * pairs * width  # two products


def test_the_largest_arrays_are_named_inside_loops_too():
  def loop(a):
    return jax.lax.scan(lambda c, _: (c, jnp.sum(a @ a.T)), 0, length=5)

  x = jax.ShapeDtypeStruct((2**14, 6), jnp.float32)
  [found] = costs.largest(jax.make_jaxpr(loop)(x).jaxpr, 1)
  assert found == '1.00 GiB float32[16384,16384] of dot_general'


def test_wide_products():
  def mixed(a, b):
    return a @ b + (a.astype(jnp.float32) @ b.astype(jnp.float32)).astype(
      a.dtype
    )

  found = costs.products(jax.make_jaxpr(mixed)(_A, _B).jaxpr)
  assert [x.is_wide for x in found] == [False, True]
