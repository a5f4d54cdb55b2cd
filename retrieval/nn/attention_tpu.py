# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention for TPUs that never writes its logits.

A kernel holds all keys of a row and a head in the chip's vector memory and goes over
them block by block (Dao et al. 2022, arXiv 2205.14135), forward and backward. Logits
by the distance of query and key (Dai et al. 2019, appendix B) are one more product,
each of whose rows the kernel turns by one more than the row before it.

Dimension key: M rows of keys, N = C M rows of queries, Q queries, S keys, H heads, K
head width, T distances.
"""

import functools
import math
from typing import NamedTuple

from flax import linen as nn
import jax
from jax import custom_derivatives
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from retrieval.nn import backend

_LANES = 128
_QUERIES, _KEYS = 128, 512  # of a block, at most
_MAX_BYTES = 8 << 20  # of the arrays that stay in the vector memory
_HIDDEN = -1e30  # logit of a hidden key


class _Sizes(NamedTuple):
  causal: bool
  key_length: int  # of one copy of the keys
  query_block: int
  key_block: int

  @property
  def window(self) -> int:
    """Relative keys that a block of queries and keys meets."""
    return _up(self.query_block + self.key_block)

  def window_start(self, num_queries, i, j):
    """First of them, for block i of the queries and block j of the keys."""
    if not self.causal:
      return 0
    start = num_queries - (i + 1) * self.query_block + j * self.key_block
    return pl.multiple_of(start, _LANES)

  def blocks_seen(self, i, num_keys):
    """Blocks of the keys that block i of the queries goes over."""
    if not self.causal:
      return num_keys // self.key_block
    return pl.cdiv((i + 1) * self.query_block, self.key_block)


class _Arrays(NamedTuple):
  """What the output is differentiated by."""

  queries: jax.Array  # [H, N, Q, K]
  keys: jax.Array  # [H, M, S, K]
  values: jax.Array  # [H, M, S, K]
  position_queries: jax.Array | None = None  # [H, N, Q, K]
  relative_keys: jax.Array | None = None  # [H, T, K]


class _Segments(NamedTuple):
  """Queries see keys of their own segment."""

  queries: jax.Array  # [N, 1, Q]
  keys: jax.Array  # [M, 1, S]


def suits(
  queries: tuple[int, ...], keys: tuple[int, ...], key_length: int
) -> bool:
  """Whether the kernel takes queries [H, N, Q, K] and keys [H, M, S, K].

  They have to fit in the vector memory, and rows and heads to divide over the
  devices of the mesh.
  """
  by_heads, by_rows = _ways()
  stay = 2 * _up(keys[2]) + _up(queries[2]) + _up(key_length)
  return (
    4 * stay * _up(keys[3]) <= _MAX_BYTES
    and queries[0] % by_heads == 0
    and keys[1] % by_rows == 0
  )


def attend(
  queries: Float[Array, 'H N Q K'],
  keys: Float[Array, 'H M S K'],
  values: Float[Array, 'H M S K'],
  query_segments: Int[Array, 'N Q'],
  key_segments: Int[Array, 'M S'],
  *,
  positions: tuple[Float[Array, 'H N Q K'], Float[Array, 'H T K']]
  | None = None,
  causal: bool = False,
  key_length: int = 0,
) -> Float[Array, 'H N Q K']:
  """Return softmax(queries keys^T + position logits) values.

  Args:
    queries: [H, N, Q, K]. Already scaled; rows n C, ..., n C + C - 1 share the
      keys of row n.
    keys: [H, M, S, K].
    values: [H, M, S, K].
    query_segments: [N, Q], not negative.
    key_segments: [M, S]. A query sees the keys of its own segment; one that sees
      no key gets zeros.
    positions: queries [H, N, Q, K] and relative keys [H, T, K]; the logit of query
      i and key j of a copy is the product with relative key Q - 1 - i + j.
    causal: whether a query sees the keys up to its own position alone.
    key_length: keys of one copy, which share the position logits; default S.

  Returns:
    [H, N, Q, K] in the queries' dtype.
  """
  num_queries, num_keys = queries.shape[2], keys.shape[2]
  key_length = key_length or num_keys
  copies = num_keys // key_length
  padded_queries = _up(num_queries, _LANES if num_queries > _LANES else 8)
  padded_keys = _up(key_length)
  if causal or positions is None:
    blocks = _block(padded_queries, _QUERIES), _block(padded_keys, _KEYS)
  else:
    blocks = padded_queries, padded_keys
  sizes = _Sizes(causal, padded_keys, *blocks)

  def pad_keys(x, value=0):
    shape = x.shape[:-2]
    x = x.reshape(*shape, copies, key_length, x.shape[-1])
    x = _pad(x, -2, 0, padded_keys - key_length, value)
    return x.reshape(*shape, copies * padded_keys, x.shape[-1])

  def pad_queries(x, axis):
    return _pad(x, axis, 0, padded_queries - num_queries)

  arrays = [pad_queries(queries, 2), pad_keys(keys), pad_keys(values)]
  if positions is not None:
    front = padded_queries - num_queries
    total = padded_queries + sizes.window
    relative = positions[1][:, : total - front]
    back = total - front - relative.shape[1]
    relative = _pad(relative, 1, front, back)
    arrays += [pad_queries(positions[0], 2), relative]
  segments = _Segments(
    pad_queries(query_segments, 1)[:, None],
    pad_keys(key_segments[..., None], -1)[:, None, :, 0],
  )
  return _attend(sizes, _Arrays(*arrays), segments)[:, :, :num_queries]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _attend(sizes, arrays, segments):
  return _forward(sizes, arrays, segments)[0]


@_attend.defjvp
def _attend_jvp(sizes, primals, tangents):
  arrays, segments = primals
  out, sums = _forward(sizes, arrays, segments)

  def tangent(given, d):
    arrays, segments, *_ = given
    plain = functools.partial(_plain, sizes, segments=segments)
    return jax.jvp(plain, (arrays,), (d,))[1]

  def transpose(given, g):
    return _backward(sizes, *given, g)

  given = arrays, segments, out, sums
  return out, custom_derivatives.linear_call(
    tangent, transpose, given, tangents[0]
  )


def _plain(sizes, arrays, segments):
  """The same with all logits in memory, for derivatives in forward mode."""
  copies = arrays.queries.shape[1] // arrays.keys.shape[1]
  keys, values, key_segments = (
    jnp.repeat(x, copies, axis=axis)
    for x, axis in ((arrays.keys, 1), (arrays.values, 1), (segments.keys, 0))
  )
  wide = {'preferred_element_type': jnp.float32}
  logits = jnp.einsum('hnqk,hnsk->hnqs', arrays.queries, keys, **wide)
  i, j = (jnp.arange(x) for x in logits.shape[2:])
  if arrays.relative_keys is not None:
    by_distance = jnp.einsum(
      'hnqk,htk->hnqt', arrays.position_queries, arrays.relative_keys, **wide
    )
    place = len(i) - 1 - i[:, None] + j % sizes.key_length
    logits += jnp.take_along_axis(by_distance, place[None, None], axis=-1)
  seen = segments.queries[:, 0, :, None] == key_segments
  if sizes.causal:
    seen &= i[:, None] >= j
  shares = jax.nn.softmax(jnp.where(seen, logits, _HIDDEN), axis=-1)
  return jnp.where(seen, shares, 0).astype(values.dtype) @ values


class _Block:
  """The logits of a block of queries and, one after another, blocks of keys."""

  def __init__(self, sizes, arrays, segments):
    """Read what all blocks of the keys share, from references."""
    self.sizes, self.arrays, self.segments = sizes, arrays, segments
    self.i = pl.program_id(2)
    self.num_queries = pl.num_programs(2) * sizes.query_block
    self.queries = arrays.queries[0, 0]
    self.own = _column(segments.queries[0])
    if arrays.relative_keys is not None:
      self.position_queries = arrays.position_queries[0, 0]

  @property
  def count(self):
    """Blocks of the keys."""
    return self.sizes.blocks_seen(self.i, self.arrays.keys.shape[2])

  def place(self, j):
    """Where block j of the keys is."""
    size = self.sizes.key_block
    return pl.ds(pl.multiple_of(j * size, _LANES), size)

  def window(self, j):
    """Where the relative keys of block j are."""
    start = self.sizes.window_start(self.num_queries, self.i, j)
    return pl.ds(start, self.sizes.window)

  def logits(self, j):
    """Return logits [Q, S] in float32, and which keys are seen."""
    s = self.sizes
    logits = _dot(self.queries, self.arrays.keys[0, 0, self.place(j)], 1, 1)
    if self.arrays.relative_keys is not None:
      relative = self.arrays.relative_keys[0, self.window(j)]
      by_distance = _dot(self.position_queries, relative, 1, 1)
      turned = _turn(by_distance, s.window - s.query_block + 1)
      logits += turned[:, : s.key_block]
    seen = self.own == self.segments.keys[0, :, self.place(j)]
    if s.causal:
      row, column = (
        jax.lax.broadcasted_iota(jnp.int32, logits.shape, axis)
        for axis in (0, 1)
      )
      seen &= row - column >= j * s.key_block - self.i * s.query_block
    return logits, seen


def _forward(sizes, arrays, segments):
  """Return the output and the logarithm of each query's sum: [H, N, 1, Q]."""

  def kernel(arrays, segments, out, sums):
    block = _Block(sizes, arrays, segments)

    def step(j, state):
      most, total, mixed = state
      logits, seen = block.logits(j)
      logits = jnp.where(seen, logits, _HIDDEN)
      higher = jnp.maximum(most, logits.max(axis=1, keepdims=True))
      shares = jnp.where(seen, jnp.exp(logits - higher), 0.0)
      factor = jnp.exp(most - higher)
      total = total * factor + shares.sum(axis=1, keepdims=True)
      values = arrays.values[0, 0, block.place(j)]
      mixed = mixed * factor + _dot(shares, values, 1, 0)
      return higher, total, mixed

    column = jnp.zeros((sizes.query_block, 1), jnp.float32)
    mixed = jnp.zeros(block.queries.shape, jnp.float32)
    state = column + _HIDDEN, column, mixed
    most, total, mixed = jax.lax.fori_loop(0, block.count, step, state)
    some = jnp.where(total == 0, 1.0, total)
    out[0, 0] = (mixed / some).astype(out.dtype)
    sums[0, 0] = _flat(most + jnp.log(some))

  def call(arrays, segments):
    blocks = _Blocks(sizes, arrays)
    heads, rows, num_queries, _ = arrays.queries.shape
    sums = jax.ShapeDtypeStruct((heads, rows, 1, num_queries), jnp.float32)
    return pl.pallas_call(
      kernel,
      grid=blocks.grid,
      in_specs=(blocks.arrays, blocks.segments),
      out_specs=(blocks.queries, blocks.sums),
      out_shape=(_like(arrays.queries), sums),
      interpret=backend.interprets_kernels(),
    )(arrays, segments)

  return _on_devices(call, (arrays, segments), _places(None))


def _backward(sizes, arrays, segments, out, sums, g):
  """Return the cotangents of `arrays`."""
  has_positions = arrays.relative_keys is not None
  copies = arrays.queries.shape[1] // arrays.keys.shape[1]

  def kernel(arrays, segments, out, sums, g, *rest):
    *found, sum_keys, sum_values = rest
    found = _Arrays(*found)
    block = _Block(sizes, arrays, segments)
    row = pl.program_id(1)
    g, sums = g[0, 0], _column(sums[0, 0])
    inner = (g * out[0, 0].astype(jnp.float32)).sum(axis=1, keepdims=True)

    @pl.when((block.i == 0) & (row % copies == 0))
    def _():
      for x in (sum_keys, sum_values):
        x[...] = jnp.zeros(x.shape, x.dtype)

    if has_positions:
      # Rows turn by one more than the row before: the transpose, by one less, is the
      # same of the rows in reverse.
      flip = _diagonal(len(g), reverse=True).astype(g.dtype)
      flipped = _dot(flip, block.position_queries, 1, 0).astype(g.dtype)

      @pl.when((block.i == 0) & (row == 0))
      def _():
        x = found.relative_keys
        x[...] = jnp.zeros(x.shape, x.dtype)

    def step(j, state):
      d_queries, d_position_queries = state
      place = block.place(j)
      logits, seen = block.logits(j)
      shares = jnp.where(seen, jnp.exp(logits - sums), 0.0)
      sum_values[place] += _dot(shares, g, 0, 0)
      d = shares * (_dot(g, arrays.values[0, 0, place], 1, 1) - inner)
      d_queries += _dot(d, arrays.keys[0, 0, place], 1, 0)
      sum_keys[place] += _dot(d, block.queries, 0, 0)
      if has_positions:
        window = block.window(j)
        hidden = jnp.zeros((len(d), sizes.window - d.shape[1]), jnp.float32)
        d = jnp.concatenate([_dot(flip, d.astype(g.dtype), 1, 0), hidden], 1)
        d = _turn(d, 0)
        d_position_queries += _dot(d, arrays.relative_keys[0, window], 1, 0)
        found.relative_keys[0, window] += _dot(d, flipped, 0, 0)
      return d_queries, d_position_queries

    zeros = jnp.zeros(g.shape, jnp.float32)
    ends = jax.lax.fori_loop(0, block.count, step, (zeros, zeros))
    d_queries, d_position_queries = ends
    found.queries[0, 0] = d_queries.astype(g.dtype)
    if has_positions:
      d = _dot(flip, d_position_queries.astype(g.dtype), 1, 0)
      found.position_queries[0, 0] = d.astype(g.dtype)

    @pl.when((block.i == pl.num_programs(2) - 1) & (row % copies == copies - 1))
    def _():
      found.keys[0, 0] = sum_keys[...].astype(found.keys.dtype)
      found.values[0, 0] = sum_values[...].astype(found.values.dtype)

  def call(*arguments):
    arrays = arguments[0]
    blocks = _Blocks(sizes, arrays)
    like = jax.tree.map(_like, arrays)
    if has_positions:
      summed = _like(arrays.relative_keys, jnp.float32)
      like = like._replace(relative_keys=summed)
    queries = blocks.queries
    found = pl.pallas_call(
      kernel,
      grid=blocks.grid,
      in_specs=(blocks.arrays, blocks.segments, queries, blocks.sums, queries),
      out_specs=blocks.arrays,
      out_shape=like,
      scratch_shapes=[pltpu.VMEM(arrays.keys.shape[2:], jnp.float32)] * 2,
      interpret=backend.interprets_kernels(),
    )(*arguments)
    axes = _axes()[1]
    if has_positions and axes:
      summed = jax.lax.psum(found.relative_keys, axes)
      found = found._replace(relative_keys=summed)
    return jax.tree.map(lambda x, of: x.astype(of.dtype), found, arrays)

  return _on_devices(call, (arrays, segments, out, sums, g), _places(arrays))


class _Blocks:
  """Which part of each array a point of the grid [H, N, blocks of Q] meets."""

  def __init__(self, sizes, arrays):
    """Read the sizes from the arrays of one device."""
    heads, rows, num_queries, width = arrays.queries.shape
    block = sizes.query_block
    num_keys = arrays.keys.shape[2]
    copies = rows // arrays.keys.shape[1]
    self.grid = heads, rows, num_queries // block

    def spec(shape, place):
      return pl.BlockSpec(shape, place)

    self.queries = spec((1, 1, block, width), lambda h, n, i: (h, n, i, 0))
    self.sums = spec((1, 1, 1, block), lambda h, n, i: (h, n, 0, i))
    keys = spec((1, 1, num_keys, width), lambda h, n, i: (h, n // copies, 0, 0))
    self.arrays = _Arrays(self.queries, keys, keys)
    if arrays.relative_keys is not None:
      shape = 1, *arrays.relative_keys.shape[1:]
      relative = spec(shape, lambda h, n, i: (h, 0, 0))
      self.arrays = _Arrays(self.queries, keys, keys, self.queries, relative)
    self.segments = _Segments(
      spec((1, 1, block), lambda h, n, i: (n, 0, i)),
      spec((1, 1, num_keys), lambda h, n, i: (n // copies, 0, 0)),
    )


def _dot(a, b, axis, other):
  """Multiply without rounding what is not bfloat16."""
  a = a.astype(b.dtype)
  is_narrow = b.dtype == jnp.bfloat16
  return jax.lax.dot_general(
    a,
    b,
    (((axis,), (other,)), ((), ())),
    precision=None if is_narrow else jax.lax.Precision.HIGHEST,
    preferred_element_type=jnp.float32,
  )


def _turn(x, shift):
  """Turn row i right by `shift` + i."""
  return pltpu.roll(x, shift, 1, stride=1, stride_axis=0)


def _column(row):
  """[1, Q] -> [Q, 1]."""
  return jnp.where(_diagonal(row.size), row, 0).sum(axis=1, keepdims=True)


def _flat(column):
  """[Q, 1] -> [1, Q]."""
  return jnp.where(_diagonal(column.size), column, 0).sum(axis=0, keepdims=True)


def _diagonal(size, reverse=False):
  row, column = (
    jax.lax.broadcasted_iota(jnp.int32, (size, size), axis) for axis in (0, 1)
  )
  return row == (size - 1 - column if reverse else column)


def _like(x, dtype=None):
  return jax.ShapeDtypeStruct(x.shape, dtype or x.dtype)


def _up(size: int, multiple: int = _LANES) -> int:
  return -(-size // multiple) * multiple


def _block(size: int, most: int) -> int:
  """The largest block that divides `size`, a multiple of 128 or at most that."""
  if size <= most:
    return size
  return max(x for x in range(_LANES, most + 1, _LANES) if size % x == 0)


def _pad(x, axis, front, back, value=0):
  widths = [(0, 0)] * x.ndim
  widths[axis] = front, back
  return jnp.pad(x, widths, constant_values=value)


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


def _places(x):
  """Where arguments of the kernels go on the mesh: [H, N, ...], [H, ...], [N, ...]."""
  heads, rows = (axes or None for axes in _axes())
  whole = P(heads, rows)
  if isinstance(x, _Arrays):
    found = _Arrays(*[None if y is None else whole for y in x])
    if x.relative_keys is None:
      return found
    return found._replace(relative_keys=P(heads))
  return P(rows) if isinstance(x, _Segments) else whole


def _on_devices(call, arguments, written):
  """Run `call` on each device's part of the arguments."""
  if jax.sharding.get_abstract_mesh().empty:
    return call(*arguments)
  return jax.shard_map(
    call,
    in_specs=tuple(map(_places, arguments)),
    out_specs=written,
    check_vma=False,
  )(*arguments)
