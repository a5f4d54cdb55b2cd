# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels of `fused_attention` for GPUs, for the rows and heads of one device.

Blocks of queries and keys as in Dao 2023 (arXiv 2307.08691). Logits by distance are
a product of XLA, [H, N, Q, T]: the kernels read them at the place of each query and
key, which is a stride of T - 1 a query. They are float32, but float16 beside
bfloat16 queries, whose own rounding is eight times as coarse.

Dimension key: M rows of keys, N = C M rows of queries, Q queries, S keys, H heads, K
head width, T relative keys.
"""

import functools
from typing import NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import jax.numpy as jnp

from retrieval.nn import attention_arrays as common, backend

_QUERIES, _KEYS = 128, 64  # of a block, at most
_LEAST = 16  # rows of a block and width of a head
_MOST = 6e4  # logit by distance in float16


class Sizes(NamedTuple):
  """How queries and keys meet."""

  causal: bool
  num_queries: int  # padded
  key_length: int  # of one copy of the keys, padded
  width: int  # of a head, padded
  query_block: int
  key_block: int

  @property
  def num_distances(self) -> int:
    """Relative keys, padded: no two places of logits by distance are the same."""
    if self.causal:
      return self.num_queries
    return common.up(self.num_queries + self.key_length, _KEYS)

  def blocks_seen(self, i, num_keys):
    """Blocks of the keys that block i of the queries goes over."""
    if not self.causal:
      return num_keys // self.key_block
    last = (i + 1) * self.query_block + self.key_block - 1
    if isinstance(last, int):
      return last // self.key_block
    return jax.lax.div(last, self.key_block)


def sizes_of(
  num_queries: int, key_length: int, width: int, causal: bool, positions: bool
) -> Sizes:
  """Choose blocks, whose sizes are powers of two."""
  del positions
  query_block = min(_QUERIES, _power(num_queries))
  if query_block == _QUERIES and common.up(num_queries, _KEYS) % _QUERIES:
    query_block = _KEYS  # less padding
  key_block = min(_KEYS, _power(key_length))
  if causal:
    padded = common.up(
      max(num_queries, key_length), max(query_block, key_block)
    )
    padded_queries = padded_keys = padded
  else:
    padded_queries = common.up(num_queries, query_block)
    padded_keys = common.up(key_length, key_block)
  return Sizes(
    causal, padded_queries, padded_keys, _power(width), query_block, key_block
  )


def suits(
  queries: tuple[int, ...], keys: tuple[int, ...], key_length: int
) -> bool:
  """Whether the kernels take queries [H, N, Q, K] and keys [H, M, S, K]."""
  del queries, key_length
  return keys[3] <= 256  # wider heads leave no room for a block


def _power(size: int) -> int:
  return max(_LEAST, pl.next_power_of_2(size))


def _by_distance(arrays: common.Arrays):
  """Return the logits of each query by distance, [H, N, Q * T]."""
  dtype = arrays.relative_keys.dtype
  found = jnp.einsum(
    'hnqk,htk->hnqt',
    arrays.position_queries,
    arrays.relative_keys,
    preferred_element_type=jnp.float32,
    precision=common.precision(dtype),
  )
  if dtype == jnp.bfloat16:
    found = jnp.clip(found, -_MOST, _MOST).astype(jnp.float16)
  return found.reshape(*found.shape[:2], -1)


def _iota(size: int, start=0):
  return start + jnp.arange(size, dtype=jnp.int32)


def _place(sizes: Sizes, i, j):
  """Where the logits by distance of queries i and keys j of one copy are."""
  return (
    i[:, None] * (sizes.num_distances - 1)
    + (sizes.num_queries - 1)
    + j[None, :]
  )


def _logits(sizes, queries, keys, by_distance, own, other, i, j):
  """Return logits [Q, S] in float32, and which keys are seen.

  Args:
    queries: [Q, K] of a block.
    keys: [S, K] of a block.
    by_distance: [Q * T] of all queries, a reference or a view of one, or None.
    own: [Q], segments of the queries.
    other: [S], those of the keys.
    i: [Q], numbers of the queries.
    j: [S], those of the keys in their copy.
  """
  logits = common.dot(queries, keys, 1, 1)
  if by_distance is not None:
    logits += by_distance[_place(sizes, i, j)].astype(logits.dtype)
  seen = own[:, None] == other[None, :]
  if sizes.causal:
    seen &= i[:, None] >= j[None, :]
  return logits, seen


def forward(
  sizes: Sizes, arrays: common.Arrays, segments: common.Segments
) -> tuple[jax.Array, jax.Array]:
  """Return the output [H, N, Q, K] and the logarithms of the sums [H, N, 1, Q]."""
  has_positions = arrays.relative_keys is not None

  def kernel(queries, keys, values, own, other, *rest):
    *by_distance, out, sums = rest
    block = _block_of(sizes.num_queries // sizes.query_block)
    i = _iota(sizes.query_block, block * sizes.query_block)
    own, q = own[...], queries[...]

    def step(number, state):
      most, total, mixed = state
      start = number * sizes.key_block
      place = pl.ds(start, sizes.key_block)
      j = jax.lax.rem(start, sizes.key_length)
      logits, seen = _logits(
        sizes,
        q,
        keys[place, :],
        by_distance[0] if has_positions else None,
        own,
        other[place],
        i,
        _iota(sizes.key_block, j),
      )
      logits = jnp.where(seen, logits, common.HIDDEN)
      higher = jnp.maximum(most, logits.max(axis=1))
      shares = jnp.where(seen, jnp.exp(logits - higher[:, None]), 0.0)
      factor = jnp.exp(most - higher)
      total = total * factor + shares.sum(axis=1)
      mixed = mixed * factor[:, None] + common.dot(
        shares, values[place, :], 1, 0
      )
      return higher, total, mixed

    column = jnp.zeros(sizes.query_block, jnp.float32)
    state = column + common.HIDDEN, column, jnp.zeros(q.shape, jnp.float32)
    count = sizes.blocks_seen(block, keys.shape[0])
    most, total, mixed = jax.lax.fori_loop(0, count, step, state)
    some = jnp.where(total == 0, 1.0, total)
    out[...] = (mixed / some[:, None]).astype(out.dtype)
    sums[...] = most + jnp.log(some)

  blocks = _Blocks(sizes, arrays)
  heads, rows, num_queries, _ = arrays.queries.shape
  sums = jax.ShapeDtypeStruct((heads, rows, 1, num_queries), jnp.float32)
  given, specs = blocks.given(arrays, segments)
  return blocks.call(
    kernel,
    'attention',
    specs,
    (blocks.queries, blocks.sums),
    (common.like(arrays.queries), sums),
    products=2,
  )(*given)


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
  inner = jnp.einsum(
    'hnqk,hnqk->hnq', g, out, preferred_element_type=jnp.float32
  )[:, :, None]
  narrow = sizes._replace(query_block=min(sizes.query_block, _KEYS))
  blocks = _Blocks(narrow, arrays)
  given, specs = blocks.given(arrays, segments)
  rest = sums, inner, g
  d_keys, d_values = _of_keys(blocks, arrays, given, rest)
  d_queries, *by_distance = _of_queries(blocks, arrays, given, specs, rest)
  found = common.Arrays(d_queries, d_keys, d_values)
  if not by_distance:
    return found
  shape = *by_distance[0].shape[:2], narrow.num_queries, narrow.num_distances
  by_distance = by_distance[0].reshape(shape)
  product = functools.partial(
    jnp.einsum,
    preferred_element_type=jnp.float32,
    precision=common.precision(g.dtype),
  )
  return found._replace(
    position_queries=product(
      'hnqt,htk->hnqk', by_distance, arrays.relative_keys
    ),
    relative_keys=product(
      'hnqt,hnqk->htk', by_distance, arrays.position_queries
    ),
  )


def _of_keys(blocks, arrays, given, rest):
  """Return the cotangents of keys and values: each program has a block of them."""
  sizes, copies = blocks.sizes, blocks.copies

  def kernel(queries, keys, values, own, other, *refs):
    *by_distance, sums, inner, g, d_keys, d_values = refs
    number = _block_of(blocks.key_blocks)
    start = jax.lax.rem(number * sizes.key_block, sizes.key_length)
    j = _iota(sizes.key_block, start)
    k, v, other = keys[...], values[...], other[...]

    first = 0  # block of the queries that sees these keys
    if sizes.causal:
      first = jax.lax.div(start, sizes.query_block)

    def step(turn, state):
      sum_keys, sum_values = state
      row = jax.lax.div(turn, blocks.query_blocks - first)
      block = first + jax.lax.rem(turn, blocks.query_blocks - first)
      place = pl.ds(block * sizes.query_block, sizes.query_block)
      i = _iota(sizes.query_block, block * sizes.query_block)
      q = queries[row, place, :]
      logits, seen = _logits(
        sizes,
        q,
        k,
        _Row(by_distance[0], row) if by_distance else None,
        own[row, place],
        other,
        i,
        j,
      )
      d_out = g[row, place, :]
      shares = jnp.exp(logits - sums[row, place][:, None])
      shares = jnp.where(seen, shares, 0.0)
      sum_values += common.dot(shares, d_out, 0, 0)
      d = shares * (common.dot(d_out, v, 1, 1) - inner[row, place][:, None])
      return sum_keys + common.dot(d, q, 0, 0), sum_values

    zeros = jnp.zeros(k.shape, jnp.float32)
    turns = copies * (blocks.query_blocks - first)
    found = jax.lax.fori_loop(0, turns, step, (zeros, zeros))
    d_keys[...], d_values[...] = (x.astype(d_keys.dtype) for x in found)

  return blocks.call(
    kernel,
    'attention_keys',
    (*blocks.specs_by_keys(arrays), *blocks.rest_by_keys),
    (blocks.own_keys,) * 2,
    (common.like(arrays.keys),) * 2,
    products=4,
    by_keys=True,
  )(*given, *rest)


def _of_queries(blocks, arrays, given, specs, rest):
  """Return the cotangents of queries and, [H, N, Q * T], of logits by distance."""
  sizes = blocks.sizes
  has_positions = arrays.relative_keys is not None
  key_copies = arrays.keys.shape[2] // sizes.key_length

  def kernel(queries, keys, values, own, other, *refs):
    *by_distance, sums, inner, g = refs[: 3 + has_positions]
    d_queries, *d_by_distance = refs[3 + has_positions :]
    block = _block_of(sizes.num_queries // sizes.query_block)
    i = _iota(sizes.query_block, block * sizes.query_block)
    own, q, d_out = own[...], queries[...], g[...]
    sums, inner = sums[...][:, None], inner[...][:, None]

    def step(number, found):
      j = _iota(sizes.key_block, number * sizes.key_block)

      def copy(turn, state):
        found, total = state
        start = turn * sizes.key_length + number * sizes.key_block
        place = pl.ds(start, sizes.key_block)
        k = keys[place, :]
        distances = by_distance[0] if has_positions else None
        logits, seen = _logits(sizes, q, k, distances, own, other[place], i, j)
        shares = jnp.where(seen, jnp.exp(logits - sums), 0.0)
        d = shares * (common.dot(d_out, values[place, :], 1, 1) - inner)
        return found + common.dot(d, k, 1, 0), total + d

      total = jnp.zeros((len(i), len(j)), jnp.float32)
      state = found, total
      if key_copies == 1:
        found, total = copy(0, state)
      else:
        found, total = jax.lax.fori_loop(0, key_copies, copy, state)
      if has_positions:
        _write(sizes, d_by_distance[0], i, j, total)
      return found

    count = sizes.blocks_seen(block, sizes.key_length)
    zeros = jnp.zeros(q.shape, jnp.float32)
    found = jax.lax.fori_loop(0, count, step, zeros)
    d_queries[...] = found.astype(d_queries.dtype)
    if has_positions:
      _clear(sizes, d_by_distance[0], block, i, count)

  specs = *specs, blocks.sums, blocks.sums, blocks.queries
  written, shapes = [blocks.queries], [common.like(arrays.queries)]
  if has_positions:
    written.append(blocks.by_distance)
    shapes.append(common.like(given[5], arrays.queries.dtype))
  return blocks.call(
    kernel,
    'attention_queries',
    specs,
    written,
    shapes,
    products=3,
  )(*given, *rest)


def _write(sizes, by_distance, i, j, values):
  """Write the cotangents of logits by distance of queries i and keys j."""
  last = sizes.num_distances - 1
  # What is between two rows of logits belongs to the first of them.
  mask = (j[None, :] < last) | (
    (i[:, None] == sizes.num_queries - 1) & (j[None, :] == last)
  )
  place = by_distance.at[_place(sizes, i, j)]
  plgpu.store(place, values.astype(by_distance.dtype), mask=mask)


def _clear(sizes, by_distance, block, i, start):
  """Write zeros from block `start` of the keys on, and before the first query."""
  size = sizes.key_block
  zeros = jnp.zeros((sizes.query_block, size), jnp.float32)

  def after(number, _):
    _write(sizes, by_distance, i, _iota(size, number * size), zeros)

  def before(number, _):
    place = _iota(size, number * size)
    mask = place < sizes.num_queries - 1
    plgpu.store(
      by_distance.at[place], jnp.zeros(size, by_distance.dtype), mask=mask
    )

  jax.lax.fori_loop(start, -(-sizes.num_distances // size), after, None)

  @pl.when(block == 0)
  def _():
    jax.lax.fori_loop(0, -(-sizes.num_queries // size), before, None)


class _Row:
  """Row of an array [C, ...]; Triton takes one index of a reference."""

  def __init__(self, of, row):
    self._of, self._row = of, row

  def __getitem__(self, place):
    return self._of[self._row, place]


def _block_of(count):
  """Number of this program's block, of `count` in a row."""
  return jax.lax.rem(pl.program_id(0), count)


class _Blocks:
  """Which part of each array a program of the grid [rows x blocks, H] meets."""

  def __init__(self, sizes, arrays):
    """Read the sizes from the arrays of one device."""
    heads, rows, num_queries, width = arrays.queries.shape
    key_rows, num_keys = arrays.keys.shape[1:3]
    copies = rows // key_rows
    self.sizes, self.copies = sizes, copies
    self.query_blocks = blocks = num_queries // sizes.query_block
    self.key_blocks = num_keys // sizes.key_block
    self._heads, self._rows, self._key_rows = heads, rows, key_rows
    pairs = sum(sizes.blocks_seen(i, num_keys) for i in range(blocks))
    self._pairs = 2 * heads * rows * pairs * sizes.query_block
    self._pairs *= sizes.key_block * width
    self._bytes = arrays.num_bytes
    self._flat = num_queries * sizes.num_distances

    spec, div, rem = pl.BlockSpec, jax.lax.div, jax.lax.rem

    def row(x):
      return div(x, blocks)

    def key_row(x):
      return div(x, blocks * copies)

    q, k = sizes.query_block, sizes.key_block
    self.queries = spec(
      (None, None, q, width), lambda x, h: (h, row(x), rem(x, blocks), 0)
    )
    self.sums = spec(
      (None, None, None, q), lambda x, h: (h, row(x), 0, rem(x, blocks))
    )
    self.by_distance = spec(
      (None, None, self._flat), lambda x, h: (h, row(x), 0)
    )
    keys = spec(
      (None, None, num_keys, width), lambda x, h: (h, key_row(x), 0, 0)
    )
    own = spec((None, None, q), lambda x, h: (row(x), 0, rem(x, blocks)))
    other = spec((None, None, num_keys), lambda x, h: (key_row(x), 0, 0))
    self._specs = self.queries, keys, keys, own, other

    number = self.key_blocks
    self.own_keys = spec(
      (None, None, k, width),
      lambda x, h: (h, div(x, number), rem(x, number), 0),
    )
    all_queries = spec(
      (None, copies, num_queries, width),
      lambda x, h: (h, div(x, number), 0, 0),
    )
    all_sums = spec(
      (None, copies, None, num_queries),
      lambda x, h: (h, div(x, number), 0, 0),
    )
    self.rest_by_keys = all_sums, all_sums, all_queries
    self._specs_by_keys = (
      all_queries,
      self.own_keys,
      self.own_keys,
      spec((copies, None, num_queries), lambda x, h: (div(x, number), 0, 0)),
      spec((None, None, k), lambda x, h: (div(x, number), 0, rem(x, number))),
    )
    self._by_distance_by_keys = spec(
      (None, copies, self._flat), lambda x, h: (h, div(x, number), 0)
    )

  def given(self, arrays, segments):
    """Return what each kernel reads, and where its programs read it."""
    given = *arrays[:3], segments.queries, segments.keys
    if arrays.relative_keys is None:
      return given, self._specs
    return (*given, _by_distance(arrays)), (*self._specs, self.by_distance)

  def specs_by_keys(self, arrays):
    """Return where programs that have a block of the keys read the same."""
    if arrays.relative_keys is None:
      return self._specs_by_keys
    return *self._specs_by_keys, self._by_distance_by_keys

  def call(self, kernel, name, specs, written, shapes, products, by_keys=False):
    """Return the call of a kernel with a number of products."""
    programs = self._rows * self.query_blocks
    if by_keys:
      programs = self._key_rows * self.key_blocks
    return pl.pallas_call(
      kernel,
      name=name,
      grid=(programs, self._heads),
      in_specs=specs,
      out_specs=written,
      out_shape=shapes,
      cost_estimate=pl.CostEstimate(
        flops=products * self._pairs,
        transcendentals=0,
        bytes_accessed=self._bytes,
      ),
      compiler_params=plgpu.CompilerParams(
        num_warps=8 if self.sizes.width >= 128 else 4, num_stages=2
      ),
      interpret=backend.interprets_kernels(),
    )
