# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The position term of `distances` for TPUs, which turn rows within a kernel.

Row i of the logits by distance moves left by Q - 1 - i. As a reshape, XLA copies the
logits in a loop; here a kernel multiplies, turns each row by one more than the row
before it, and writes the result once.

Dimension key: N rows, Q queries, S keys, H heads, K head width, W distances, a
multiple of 128.
"""

import functools
import math

from flax import linen as nn
import jax
from jax import custom_derivatives
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

_LANES = 128
_MAX_BYTES = 8 << 20  # of one block of the logits by distance


def suits(queries: Float[Array, 'H N Q K'], num_keys: int, width: int) -> bool:
  """Whether the kernel takes these sizes, on each device of the mesh."""
  heads, rows, num_queries, _ = queries.shape
  block = _block(num_queries)
  return (
    num_keys % _LANES == 0
    and num_queries % block == 0
    and block % 8 == 0
    and 4 * block * _padded(width) <= _MAX_BYTES
    and all(
      size % ways == 0
      for size, ways in zip((heads, rows), _ways(), strict=True)
    )
  )


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def logits(
  queries: Float[Array, 'H N Q K'],
  relative_keys: Float[Array, 'H T K'],
  num_keys: int,
) -> Float[Array, 'H N Q S']:
  """As `distances.shift_to_keys` of queries @ relative_keys^T, in float32."""
  return _forward(queries, relative_keys, num_keys)


@logits.defjvp
def _logits_jvp(num_keys, primals, tangents):
  queries, keys = primals
  d_queries, d_keys = tangents
  out = _forward(queries, keys, num_keys)
  by_queries = custom_derivatives.linear_call(
    lambda keys, d: _forward(d, keys, num_keys),
    lambda keys, g: _to_queries(g, keys),
    keys,
    d_queries,
  )
  by_keys = custom_derivatives.linear_call(
    lambda queries, d: _forward(queries, d, num_keys),
    lambda queries, g: _to_keys(g, queries, keys.shape[1]),
    queries,
    d_keys,
  )
  return out, by_queries + by_keys


def _forward(queries, keys, num_keys):
  keys = _pad(keys)
  total, block = queries.shape[2], _block(queries.shape[2])

  def kernel(q, r, out):
    by_distance = _dot(q[0], r[0], 1, 1)
    first = total - 1 - pl.program_id(2) * block
    turned = _turn(by_distance, keys.shape[1] - first)
    out[0] = turned[:, :num_keys]

  def call(queries, keys):
    return _call(
      kernel,
      (queries, keys),
      (_rows(block, queries.shape[3]), _whole(keys.shape[1:])),
      _rows(block, num_keys),
      jax.ShapeDtypeStruct((*queries.shape[:3], num_keys), jnp.float32),
      queries.shape[:2],
      total // block,
    )

  return _on_devices(call, ('rows', 'heads'), 'rows')(queries, keys)


def _to_queries(g, keys):
  """The transpose for the queries: [H, N, Q, S] -> [H, N, Q, K]."""
  padded = _pad(keys)
  total, block = g.shape[2], _block(g.shape[2])

  def kernel(g, r, out):
    out[0] = _dot(
      _by_distance(g[0], padded.shape[1], block), r[0], 1, 0
    ).astype(out.dtype)

  def call(g, keys):
    return _call(
      kernel,
      (g, keys),
      (_rows(block, g.shape[3]), _whole(keys.shape[1:])),
      _rows(block, keys.shape[2]),
      jax.ShapeDtypeStruct((*g.shape[:3], keys.shape[2]), keys.dtype),
      g.shape[:2],
      total // block,
    )

  g = _reversed(g, keys.dtype)
  return _on_devices(call, ('rows', 'heads'), 'rows')(g, padded)[:, :, ::-1]


def _to_keys(g, queries, width):
  """The transpose for the relative keys: [H, N, Q, S] -> [H, T, K]."""
  padded = _padded(width)
  total, block = g.shape[2], _block(g.shape[2])

  def kernel(g, q, out):
    @pl.when((pl.program_id(1) == 0) & (pl.program_id(2) == 0))
    def _():
      out[0] = jnp.zeros(out.shape[1:], out.dtype)

    out[0] += _dot(_by_distance(g[0], padded, block), q[0], 0, 0)

  def call(g, queries):
    shape = (padded, queries.shape[3])
    summed = _call(
      kernel,
      (g, queries),
      (_rows(block, g.shape[3]), _rows(block, queries.shape[3])),
      _whole(shape),
      jax.ShapeDtypeStruct((len(g), *shape), jnp.float32),
      g.shape[:2],
      total // block,
    )
    axes = _axes()[1]
    return jax.lax.psum(summed, axes) if axes else summed

  g = _reversed(g, queries.dtype)
  found = _on_devices(call, ('rows', 'rows'), 'heads')(g, queries[:, :, ::-1])
  return found[:, :width].astype(queries.dtype)


def _by_distance(g, width, block):
  """Rows of reversed queries, each turned right by its number: [block, W]."""
  g = g.astype(jnp.float32)  # narrow rows cannot be turned
  g = jnp.concatenate([g, jnp.zeros((len(g), width - g.shape[1]), g.dtype)], 1)
  return _turn(g, pl.program_id(2) * block)


def _turn(x, shift):
  """Turn row i right by `shift` + i."""
  return pltpu.roll(x, shift, 1, stride=1, stride_axis=0)


def _dot(a, b, axis, other):
  a = a.astype(b.dtype)
  dimensions = (((axis,), (other,)), ((), ()))
  return jax.lax.dot_general(
    a, b, dimensions, preferred_element_type=jnp.float32
  )


def _reversed(g, dtype):
  return g[:, :, ::-1].astype(dtype)


def _rows(block, width):
  return pl.BlockSpec((None, 1, block, width), lambda h, n, i: (h, n, i, 0))


def _whole(shape):
  return pl.BlockSpec((1, *shape), lambda h, n, i: (h, 0, 0))


def _call(kernel, arguments, read, written, result, grid, blocks):
  return pl.pallas_call(
    kernel,
    grid=(*grid, blocks),
    in_specs=list(read),
    out_specs=written,
    out_shape=result,
    interpret=jax.default_backend() == 'cpu' and not _is_elsewhere(),
  )(*arguments)


def _is_elsewhere() -> bool:
  """Whether the program is compiled for devices of another machine."""
  device = jax.sharding.get_abstract_mesh().abstract_device
  return device is not None and 'tpu' in device.device_kind.lower()


def _block(num_queries: int) -> int:
  return min(num_queries, _LANES)


def _padded(width: int) -> int:
  return -(-width // _LANES) * _LANES


def _pad(keys):
  return jnp.pad(
    keys, ((0, 0), (0, _padded(keys.shape[1]) - keys.shape[1]), (0, 0))
  )


def _axes() -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Axes of the mesh over which heads and rows go."""
  if jax.sharding.get_abstract_mesh().empty:
    return (), ()
  found = nn.logical_to_mesh_axes(('heads', 'batch')) or (None, None)
  return tuple(
    () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    for axes in found
  )


def _ways() -> list[int]:
  sizes = jax.sharding.get_abstract_mesh().shape
  return [math.prod(sizes[name] for name in axes) for axes in _axes()]


def _on_devices(call, read, written):
  """Run `call` on each device's part: 'rows' [H, N, ...], or 'heads' [H, ...]."""
  if jax.sharding.get_abstract_mesh().empty:
    return call
  heads, rows = (axes or None for axes in _axes())
  specs = {'rows': P(heads, rows), 'heads': P(heads)}
  return jax.shard_map(
    call,
    in_specs=tuple(specs[x] for x in read),
    out_specs=specs[written],
    check_vma=False,
  )
