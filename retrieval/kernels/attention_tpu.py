# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels of `fused_attention` for TPUs, for the rows and heads of one device.

A kernel holds all keys of a row and a head in the chip's vector memory and goes over
them block by block. Logits by the distance of query and key are one more product,
each of whose rows the kernel turns by one more than the row before it.

Dimension key: M rows of keys, N = C M rows of queries, Q queries, S keys, H heads, K
head width, T relative keys.
"""

from typing import NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp

from retrieval.kernels import attention_arrays as common, backend

_LANES = 128  # numbers in a row of a register
_QUERIES, _KEYS = 128, 512  # of a block, at most
_MAX_BYTES = 8 << 20  # of the arrays that stay in the vector memory


class Sizes(NamedTuple):
  """How queries and keys meet."""

  causal: bool
  num_queries: int  # padded
  key_length: int  # of one copy of the keys, padded
  width: int  # of a head
  query_block: int
  key_block: int

  @property
  def num_distances(self) -> int:
    """Relative keys, padded."""
    return self.num_queries + self.window

  @property
  def window(self) -> int:
    """Relative keys that a block of queries and keys meets."""
    return common.up(self.query_block + self.key_block, _LANES)

  def blocks_seen(self, i, num_keys):
    """Blocks of the keys that block i of the queries goes over."""
    if not self.causal:
      return num_keys // self.key_block
    return pl.cdiv((i + 1) * self.query_block, self.key_block)


def sizes_of(
  num_queries: int, key_length: int, width: int, causal: bool, positions: bool
) -> Sizes:
  """Choose blocks; with positions, one block holds all that is not causal."""
  lanes = _LANES if num_queries > _LANES else 8
  padded_queries = common.up(num_queries, lanes)
  padded_keys = common.up(key_length, _LANES)
  blocks = padded_queries, padded_keys
  if causal or not positions:
    blocks = _block(padded_queries, _QUERIES), _block(padded_keys, _KEYS)
  return Sizes(causal, padded_queries, padded_keys, width, *blocks)


def _block(size: int, most: int) -> int:
  """The largest block that divides `size`, a multiple of 128 or at most that."""
  if size <= most:
    return size
  return max(x for x in range(_LANES, most + 1, _LANES) if size % x == 0)


def suits(
  queries: tuple[int, ...], keys: tuple[int, ...], key_length: int
) -> bool:
  """Whether queries [H, N, Q, K] and keys [H, M, S, K] fit in the vector memory."""
  lengths = keys[2], keys[2], queries[2], key_length
  stay = sum(common.up(x, _LANES) for x in lengths)
  return 4 * stay * common.up(keys[3], _LANES) <= _MAX_BYTES


class _Block:
  """The logits of a block of queries and, one after another, blocks of keys."""

  def __init__(self, sizes, arrays, segments):
    """Read the values common to all blocks of the keys."""
    self.sizes, self.arrays, self.segments = sizes, arrays, segments
    self.i = pl.program_id(2)
    self.queries = arrays.queries[0, 0]
    self.query_segments = _column(segments.queries[0])
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
    s = self.sizes
    if not s.causal:
      return pl.ds(0, s.window)
    start = s.num_queries - (self.i + 1) * s.query_block + j * s.key_block
    return pl.ds(pl.multiple_of(start, _LANES), s.window)

  def logits(self, j):
    """Return float32 logits [Q, S] and the mask of visible keys."""
    s = self.sizes
    logits = common.dot(
      self.queries, self.arrays.keys[0, 0, self.place(j)], 1, 1
    )
    if self.arrays.relative_keys is not None:
      relative = self.arrays.relative_keys[0, self.window(j)]
      by_distance = common.dot(self.position_queries, relative, 1, 1)
      turned = _turn(by_distance, s.window - s.query_block + 1)
      logits += turned[:, : s.key_block]
    seen = self.query_segments == self.segments.keys[0, :, self.place(j)]
    if s.causal:
      row, column = (
        jax.lax.broadcasted_iota(jnp.int32, logits.shape, axis)
        for axis in (0, 1)
      )
      seen &= row - column >= j * s.key_block - self.i * s.query_block
    return logits, seen


def forward(
  sizes: Sizes, arrays: common.Arrays, segments: common.Segments
) -> tuple[jax.Array, jax.Array]:
  """Return the output [H, N, Q, K] and the logarithms of the sums [H, N, 1, Q]."""

  def kernel(arrays, segments, out, sums):
    block = _Block(sizes, arrays, segments)

    def step(j, state):
      most, total, mixed = state
      logits, seen = block.logits(j)
      logits = jnp.where(seen, logits, common.HIDDEN)
      higher = jnp.maximum(most, logits.max(axis=1, keepdims=True))
      shares = jnp.where(seen, jnp.exp(logits - higher), 0.0)
      factor = jnp.exp(most - higher)
      total = total * factor + shares.sum(axis=1, keepdims=True)
      values = arrays.values[0, 0, block.place(j)]
      mixed = mixed * factor + common.dot(shares, values, 1, 0)
      return higher, total, mixed

    column = jnp.zeros((sizes.query_block, 1), jnp.float32)
    mixed = jnp.zeros(block.queries.shape, jnp.float32)
    state = column + common.HIDDEN, column, mixed
    most, total, mixed = jax.lax.fori_loop(0, block.count, step, state)
    some = jnp.where(total == 0, 1.0, total)
    out[0, 0] = (mixed / some).astype(out.dtype)
    sums[0, 0] = _flat(most + jnp.log(some))

  blocks = _Blocks(sizes, arrays)
  heads, rows, num_queries, _ = arrays.queries.shape
  sums = jax.ShapeDtypeStruct((heads, rows, 1, num_queries), jnp.float32)
  return pl.pallas_call(
    kernel,
    grid=blocks.grid,
    in_specs=(blocks.arrays, blocks.segments),
    out_specs=(blocks.queries, blocks.sums),
    out_shape=(common.like(arrays.queries), sums),
    cost_estimate=blocks.cost(2, 1),
    interpret=backend.interprets_kernels(),
  )(arrays, segments)


def backward(
  sizes: Sizes,
  arrays: common.Arrays,
  segments: common.Segments,
  out: jax.Array,
  sums: jax.Array,
  g: jax.Array,
) -> common.Arrays:
  """Return the cotangents of `arrays`, that of the relative keys in float32.

  Args:
    out: [H, N, Q, K], of `forward`.
    sums: [H, N, 1, Q], of `forward`.
    g: [H, N, Q, K]. Cotangent of `out`.
  """
  has_positions = arrays.relative_keys is not None
  copies = arrays.queries.shape[1] // arrays.keys.shape[1]

  def kernel(arrays, segments, out, sums, g, *rest):
    *cotangents, sum_keys, sum_values = rest
    cotangents = common.Arrays(*cotangents)
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
      flipped = common.dot(flip, block.position_queries, 1, 0).astype(g.dtype)

      @pl.when((block.i == 0) & (row == 0))
      def _():
        x = cotangents.relative_keys
        x[...] = jnp.zeros(x.shape, x.dtype)

    def step(j, state):
      d_queries, d_position_queries = state
      place = block.place(j)
      logits, seen = block.logits(j)
      shares = jnp.where(seen, jnp.exp(logits - sums), 0.0)
      sum_values[place] += common.dot(shares, g, 0, 0)
      d = shares * (common.dot(g, arrays.values[0, 0, place], 1, 1) - inner)
      d_queries += common.dot(d, arrays.keys[0, 0, place], 1, 0)
      sum_keys[place] += common.dot(d, block.queries, 0, 0)
      if has_positions:
        window = block.window(j)
        hidden = jnp.zeros((len(d), sizes.window - d.shape[1]), jnp.float32)
        d = jnp.concatenate(
          [common.dot(flip, d.astype(g.dtype), 1, 0), hidden], 1
        )
        d = _turn(d, 0)
        d_position_queries += common.dot(
          d, arrays.relative_keys[0, window], 1, 0
        )
        cotangents.relative_keys[0, window] += common.dot(d, flipped, 0, 0)
      return d_queries, d_position_queries

    zeros = jnp.zeros(g.shape, jnp.float32)
    ends = jax.lax.fori_loop(0, block.count, step, (zeros, zeros))
    d_queries, d_position_queries = ends
    cotangents.queries[0, 0] = d_queries.astype(g.dtype)
    if has_positions:
      d = common.dot(flip, d_position_queries.astype(g.dtype), 1, 0)
      cotangents.position_queries[0, 0] = d.astype(g.dtype)

    @pl.when((block.i == pl.num_programs(2) - 1) & (row % copies == copies - 1))
    def _():
      cotangents.keys[0, 0] = sum_keys[...].astype(cotangents.keys.dtype)
      cotangents.values[0, 0] = sum_values[...].astype(cotangents.values.dtype)

  blocks = _Blocks(sizes, arrays)
  like = jax.tree.map(common.like, arrays)
  if has_positions:
    summed = common.like(arrays.relative_keys, jnp.float32)
    like = like._replace(relative_keys=summed)
  queries = blocks.queries
  return pl.pallas_call(
    kernel,
    grid=blocks.grid,
    in_specs=(blocks.arrays, blocks.segments, queries, blocks.sums, queries),
    out_specs=blocks.arrays,
    out_shape=like,
    cost_estimate=blocks.cost(5, 3, 1),
    scratch_shapes=[pltpu.VMEM(arrays.keys.shape[2:], jnp.float32)] * 2,
    interpret=backend.interprets_kernels(),
  )(arrays, segments, out, sums, g)


class _Blocks:
  """Blocks that a point of the grid [H, N, blocks of Q] reads and writes."""

  def __init__(self, sizes, arrays):
    """Read the sizes from the arrays of one device."""
    heads, rows, num_queries, width = arrays.queries.shape
    block = sizes.query_block
    num_keys = arrays.keys.shape[2]
    copies = rows // arrays.keys.shape[1]
    self.grid = heads, rows, num_queries // block
    pairs = sum(sizes.blocks_seen(i, num_keys) for i in range(self.grid[2]))
    self._pairs = 2 * heads * rows * pairs * block  # queries and blocks of keys
    self._width = width
    self._sizes, self._bytes = sizes, arrays.num_bytes

    spec = pl.BlockSpec
    self.queries = spec((1, 1, block, width), lambda h, n, i: (h, n, i, 0))
    self.sums = spec((1, 1, 1, block), lambda h, n, i: (h, n, 0, i))
    keys = spec((1, 1, num_keys, width), lambda h, n, i: (h, n // copies, 0, 0))
    self.arrays = common.Arrays(self.queries, keys, keys)
    if arrays.relative_keys is not None:
      shape = 1, *arrays.relative_keys.shape[1:]
      relative = spec(shape, lambda h, n, i: (h, 0, 0))
      self.arrays = common.Arrays(
        self.queries, keys, keys, self.queries, relative
      )
    self.segments = common.Segments(
      spec((1, 1, block), lambda h, n, i: (n, 0, i)),
      spec((1, 1, num_keys), lambda h, n, i: (n // copies, 0, 0)),
    )

  def cost(self, by_keys, by_windows, reversals=0) -> pl.CostEstimate:
    """Estimate the cost of products with keys, relative keys and reversed rows."""
    s = self._sizes
    flops = self._pairs * by_keys * s.key_block * self._width
    if self.arrays.relative_keys is not None:
      flops += self._pairs * by_windows * s.window * self._width
      flops += self._pairs * reversals * s.key_block * s.query_block
    return pl.CostEstimate(
      flops=flops, transcendentals=0, bytes_accessed=self._bytes
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
