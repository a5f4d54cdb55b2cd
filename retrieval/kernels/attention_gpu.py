# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels of `fused_attention` for GPUs, for the rows and heads of one device.

Blocks of queries and keys as in Dao 2023 (arXiv 2307.08691). Logits by distance are
a product of XLA, [H, N, Q, T]: the kernels read them at the place of each query and
key, which is a stride of T - 1 a query. They are float32, but float16 beside
bfloat16 queries, whose rounding is eight times as coarse.

Dimension key: M rows of keys, N = C M rows of queries, Q queries, S keys, H heads, K
head width, T relative keys.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import jax.numpy as jnp

from retrieval.kernels import (
  attention_arrays as common,
  attention_gpu_blocks as blocks_lib,
)

sizes_of, suits = blocks_lib.sizes_of, blocks_lib.suits


def forward(sizes, arrays, segments):
  """As `attention_tpu.forward`."""
  has_positions = arrays.relative_keys is not None

  def kernel(queries, keys, values, query_segments, key_segments, *rest):
    *by_distance, out, sums = rest
    block = blocks_lib.block_of(sizes.num_queries // sizes.query_block)
    i = blocks_lib.iota(sizes.query_block, block * sizes.query_block)
    query_segments, q = query_segments[...], queries[...]

    def step(number, state):
      most, total, mixed = state
      start = number * sizes.key_block
      place = pl.ds(start, sizes.key_block)
      j = jax.lax.rem(start, sizes.key_length)
      k, of_keys = keys[place, :], key_segments[place]
      j = blocks_lib.iota(sizes.key_block, j)
      distances = by_distance[0] if has_positions else None
      logits, seen = blocks_lib.logits_of(
        sizes, q, k, distances, query_segments, of_keys, i, j
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

  blocks = blocks_lib.Blocks(sizes, arrays)
  heads, rows, num_queries, _ = arrays.queries.shape
  sums = jax.ShapeDtypeStruct((heads, rows, 1, num_queries), jnp.float32)
  operands, specs, _ = blocks.operands(arrays, segments)
  return blocks.call(
    kernel,
    'attention',
    specs,
    (blocks.queries, blocks.sums),
    (common.like(arrays.queries), sums),
    products=2,
  )(*operands)


def backward(sizes, arrays, segments, out, sums, g):
  """As `attention_tpu.backward`."""
  inner = jnp.einsum(
    'hnqk,hnqk->hnq', g, out, preferred_element_type=jnp.float32
  )[:, :, None]
  # Blocks small enough for a backward pass
  narrow = sizes._replace(query_block=min(sizes.query_block, blocks_lib.KEYS))
  blocks = blocks_lib.Blocks(narrow, arrays)
  operands, by_queries, by_keys = blocks.operands(arrays, segments)
  all_of = arrays, operands, (sums, inner, g)
  d_keys, d_values = _of_keys(blocks, by_keys, *all_of)
  d_queries, *by_distance = _of_queries(blocks, by_queries, *all_of)
  if not by_distance:
    return common.Arrays(d_queries, d_keys, d_values)
  shape = *by_distance[0].shape[:2], narrow.num_queries, narrow.num_distances
  d = by_distance[0].reshape(shape)
  d_positions = common.einsum('hnqt,htk->hnqk', d, arrays.relative_keys)
  d_relative = common.einsum('hnqt,hnqk->htk', d, arrays.position_queries)
  return common.Arrays(d_queries, d_keys, d_values, d_positions, d_relative)


def _of_keys(blocks, specs, arrays, operands, rest):
  """Return the cotangents of keys and values: each program has a block of them."""
  sizes, copies = blocks.sizes, blocks.copies

  def kernel(queries, keys, values, query_segments, key_segments, *refs):
    *by_distance, sums, inner, g, d_keys, d_values = refs
    number = blocks_lib.block_of(blocks.key_blocks)
    start = jax.lax.rem(number * sizes.key_block, sizes.key_length)
    j = blocks_lib.iota(sizes.key_block, start)
    k, v, key_segments = keys[...], values[...], key_segments[...]

    first = 0  # block of the queries that sees these keys
    if sizes.causal:
      first = jax.lax.div(start, sizes.query_block)

    def step(turn, state):
      sum_keys, sum_values = state
      row = jax.lax.div(turn, blocks.query_blocks - first)
      block = first + jax.lax.rem(turn, blocks.query_blocks - first)
      place = pl.ds(block * sizes.query_block, sizes.query_block)
      i = blocks_lib.iota(sizes.query_block, block * sizes.query_block)
      q, of_queries = queries[row, place, :], query_segments[row, place]
      distances = _Row(by_distance[0], row) if by_distance else None
      logits, seen = blocks_lib.logits_of(
        sizes, q, k, distances, of_queries, key_segments, i, j
      )
      d_out = g[row, place, :]
      shares = jnp.exp(logits - sums[row, place][:, None])
      shares = jnp.where(seen, shares, 0.0)
      sum_values += common.dot(shares, d_out, 0, 0)
      d = shares * (common.dot(d_out, v, 1, 1) - inner[row, place][:, None])
      return sum_keys + common.dot(d, q, 0, 0), sum_values

    zeros = jnp.zeros(k.shape, jnp.float32)
    turns = copies * (blocks.query_blocks - first)
    sums_of_blocks = jax.lax.fori_loop(0, turns, step, (zeros, zeros))
    d_keys[...], d_values[...] = (
      x.astype(d_keys.dtype) for x in sums_of_blocks
    )

  return blocks.call(
    kernel,
    'attention_keys',
    (*specs, *blocks.rest_by_keys),
    (blocks.keys,) * 2,
    (common.like(arrays.keys),) * 2,
    products=4,
    by_keys=True,
  )(*operands, *rest)


def _of_queries(blocks, specs, arrays, operands, rest):
  """Return the cotangents of queries and, [H, N, Q * T], of logits by distance."""
  sizes = blocks.sizes
  has_positions = arrays.relative_keys is not None
  key_copies = arrays.keys.shape[2] // sizes.key_length

  def kernel(queries, keys, values, query_segments, key_segments, *refs):
    *by_distance, sums, inner, g = refs[: 3 + has_positions]
    d_queries, *d_by_distance = refs[3 + has_positions :]
    block = blocks_lib.block_of(sizes.num_queries // sizes.query_block)
    i = blocks_lib.iota(sizes.query_block, block * sizes.query_block)
    query_segments, q, d_out = query_segments[...], queries[...], g[...]
    sums, inner = sums[...][:, None], inner[...][:, None]

    def step(number, sum_queries):
      j = blocks_lib.iota(sizes.key_block, number * sizes.key_block)

      def copy(turn, state):
        sum_queries, total = state
        start = turn * sizes.key_length + number * sizes.key_block
        place = pl.ds(start, sizes.key_block)
        k = keys[place, :]
        distances = by_distance[0] if has_positions else None
        logits, seen = blocks_lib.logits_of(
          sizes, q, k, distances, query_segments, key_segments[place], i, j
        )
        shares = jnp.where(seen, jnp.exp(logits - sums), 0.0)
        d = shares * (common.dot(d_out, values[place, :], 1, 1) - inner)
        return sum_queries + common.dot(d, k, 1, 0), total + d

      total = jnp.zeros((len(i), len(j)), jnp.float32)
      state = sum_queries, total
      if key_copies == 1:
        sum_queries, total = copy(0, state)
      else:
        sum_queries, total = jax.lax.fori_loop(0, key_copies, copy, state)
      if has_positions:
        _write(sizes, d_by_distance[0], i, j, total)
      return sum_queries

    count = sizes.blocks_seen(block, sizes.key_length)
    zeros = jnp.zeros(q.shape, jnp.float32)
    sum_queries = jax.lax.fori_loop(0, count, step, zeros)
    d_queries[...] = sum_queries.astype(d_queries.dtype)
    if has_positions:
      _clear(sizes, d_by_distance[0], block, i, count)

  specs = *specs, blocks.sums, blocks.sums, blocks.queries
  written, shapes = [blocks.queries], [common.like(arrays.queries)]
  if has_positions:
    written.append(blocks.by_distance)
    shapes.append(common.like(operands[5], arrays.queries.dtype))
  return blocks.call(
    kernel, 'attention_queries', specs, written, shapes, products=3
  )(*operands, *rest)


def _write(sizes, by_distance, i, j, values):
  """Write the cotangents of logits by distance of queries i and keys j."""
  last = sizes.num_distances - 1
  # What is between two rows of logits belongs to the first of them.
  mask = (j[None, :] < last) | (
    (i[:, None] == sizes.num_queries - 1) & (j[None, :] == last)
  )
  place = by_distance.at[blocks_lib.place_of(sizes, i, j)]
  plgpu.store(place, values.astype(by_distance.dtype), mask=mask)


def _clear(sizes, by_distance, block, i, start):
  """Write zeros from block `start` of the keys on, and before the first query."""
  size = sizes.key_block
  zeros = jnp.zeros((sizes.query_block, size), jnp.float32)

  def after(number, _):
    _write(sizes, by_distance, i, blocks_lib.iota(size, number * size), zeros)

  def before(number, _):
    place = blocks_lib.iota(size, number * size)
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
