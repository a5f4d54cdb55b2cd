# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks of queries and keys of `attention_gpu`, and the logits of a pair of them.

Dimension key: M rows of keys, N = C M rows of queries, Q queries, S keys, H heads, K
head width, T relative keys.
"""

from typing import NamedTuple

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import jax.numpy as jnp

from retrieval.kernels import attention_arrays as common, backend

QUERIES, KEYS = 128, 64  # of a block, at most
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
    return common.up(self.num_queries + self.key_length, KEYS)

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
  """Choose blocks; their sizes are powers of two."""
  del positions
  query_block = min(QUERIES, _power(num_queries))
  if query_block == QUERIES and common.up(num_queries, KEYS) % QUERIES:
    query_block = KEYS  # less padding
  key_block = min(KEYS, _power(key_length))
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


def logits_by_distance(arrays: common.Arrays):
  """Return the logits of each query by distance, [H, N, Q * T]."""
  keys = arrays.relative_keys
  logits = common.einsum('hnqk,htk->hnqt', arrays.position_queries, keys)
  if keys.dtype == jnp.bfloat16:
    logits = jnp.clip(logits, -_MOST, _MOST).astype(jnp.float16)
  return logits.reshape(*logits.shape[:2], -1)


def iota(size: int, start=0):
  """Return `size` numbers from `start` on."""
  return start + jnp.arange(size, dtype=jnp.int32)


def place_of(sizes: Sizes, i, j):
  """Where the logits by distance of queries i and keys j of one copy are."""
  rows = i[:, None] * (sizes.num_distances - 1) + (sizes.num_queries - 1)
  return rows + j[None, :]


def logits_of(
  sizes, queries, keys, by_distance, query_segments, key_segments, i, j
):
  """Return float32 logits [Q, S] and the mask of visible keys.

  Queries [Q, K] and keys [S, K] are those of a block, i [Q] and j [S] their numbers,
  those of keys in their copy. `by_distance` is [Q * T] of all queries, a reference or
  a view of one, or None.
  """
  logits = common.dot(queries, keys, 1, 1)
  if by_distance is not None:
    logits += by_distance[place_of(sizes, i, j)].astype(logits.dtype)
  seen = query_segments[:, None] == key_segments[None, :]
  if sizes.causal:
    seen &= i[:, None] >= j[None, :]
  return logits, seen


def block_of(count):
  """Number of this program's block, of `count` in a row."""
  return jax.lax.rem(pl.program_id(0), count)


class Blocks:
  """Blocks that a program of the grid [rows x blocks, H] reads and writes."""

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
    self._by_queries = (
      *(self.queries, keys, keys),
      spec((None, None, q), lambda x, h: (row(x), 0, rem(x, blocks))),
      spec((None, None, num_keys), lambda x, h: (key_row(x), 0, 0)),
      self.by_distance,
    )

    number = self.key_blocks
    self.keys = spec(
      (None, None, k, width),
      lambda x, h: (h, div(x, number), rem(x, number), 0),
    )
    all_queries, all_sums = (
      spec((None, copies, *shape), lambda x, h: (h, div(x, number), 0, 0))
      for shape in ((num_queries, width), (None, num_queries))
    )
    self.rest_by_keys = all_sums, all_sums, all_queries
    self._by_keys = (
      *(all_queries, self.keys, self.keys),
      spec((copies, None, num_queries), lambda x, h: (div(x, number), 0, 0)),
      spec((None, None, k), lambda x, h: (div(x, number), 0, rem(x, number))),
      spec((None, copies, self._flat), lambda x, h: (h, div(x, number), 0)),
    )

  def operands(self, arrays, segments):
    """Return operands, and their specs by blocks of queries and of keys."""
    operands = *arrays[:3], segments.queries, segments.keys
    if arrays.relative_keys is not None:
      operands = *operands, logits_by_distance(arrays)
    count = len(operands)
    return operands, self._by_queries[:count], self._by_keys[:count]

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
