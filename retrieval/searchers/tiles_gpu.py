# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A kernel for GPUs that reads a database once: the best two scores of each group.

Q queries, P rows of a database, D dimension, T tiles, G rows of a group, C groups of
a tile.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import jax.numpy as jnp

from retrieval.kernels import backend

_QUERIES, _GROUPS = 64, 64  # of a program, at most
_WIDTH = 128  # of a product, at most
_PARTS = 3  # bfloat16 numbers that hold a float32 number


def suits(rows: jax.Array, columns: int) -> bool:
  """Whether the kernel takes rows [P, D], C groups a tile."""
  return (
    not backend.is_cpu()
    and not backend.is_tpu()
    and rows.dtype == jnp.bfloat16
    and columns % 16 == 0
    and rows.shape[1] % 16 == 0
  )


def summarize(
  queries: jax.Array,
  rows: jax.Array,
  norms: jax.Array,
  count: jax.Array,
  *,
  metric: str,
  tile: int,
  columns: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Return of each group the best score, the second score and the best's place.

  Member g of group c of a tile is its row g C + c. Products are those of float32
  queries, to float32 rounding.

  Args:
    queries: [Q, D] float32, Q a power of two or a multiple of 16.
    rows: [P, D] bfloat16, P a multiple of the tile.
    norms: [P] float32 squared norms of the rows.
    count: [] int32. Rows from this one on are padding, with scores of -inf.
    metric: 'squared_l2', or inner product.
    tile: rows of a tile, G C.
    columns: C.

  Returns:
    [Q, T C] float32, float32 and int32.
  """
  wanted = len(queries)
  # Products have at least 16 rows.
  queries = jnp.pad(queries, ((0, max(0, 16 - wanted)), (0, 0)))
  num_queries, d = queries.shape
  group, tiles = tile // columns, len(rows) // tile
  q, c = _block(num_queries, _QUERIES), _block(columns, _GROUPS)
  width = _block(d, _WIDTH)
  parts, left = [], queries
  for _ in range(_PARTS):
    parts.append(left.astype(jnp.bfloat16))
    left -= parts[-1].astype(jnp.float32)

  def kernel(parts, rows, norms, count, best, second, at):
    first = pl.program_id(1) * c  # of the groups, and of a tile's
    tile_of = jax.lax.div(first, columns)
    start = tile_of * tile + jax.lax.rem(first, columns)

    def step(g, state):
      best, second, at = state
      place = start + g * columns
      scores = jnp.zeros((q, c), jnp.float32)
      for low in range(0, d, width):
        some = rows[pl.ds(place, c), pl.ds(low, width)]
        for part in range(_PARTS):
          scores += jax.lax.dot_general(
            parts[part, :, pl.ds(low, width)],
            some,
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
          )
      if metric == 'squared_l2':
        scores = 2 * scores - norms[pl.ds(place, c)][None, :]
      numbers = place + jnp.arange(c, dtype=jnp.int32)
      scores = jnp.where((numbers < count[0])[None, :], scores, -jnp.inf)
      is_better = scores > best
      second = jnp.where(is_better, best, jnp.maximum(second, scores))
      at = jnp.where(is_better, g, at)
      return jnp.maximum(best, scores), second, at

    lowest = jnp.full((q, c), -jnp.inf, jnp.float32)
    state = lowest, lowest, jnp.zeros((q, c), jnp.int32)
    state = jax.lax.fori_loop(0, group, step, state)
    best[...], second[...], at[...] = state

  spec = pl.BlockSpec
  written = spec((q, c), lambda i, j: (i, j))
  shape = num_queries, tiles * columns
  found = pl.pallas_call(
    kernel,
    name='tiles',
    # Programs of the same rows run one after another.
    grid=(num_queries // q, tiles * columns // c),
    in_specs=(
      spec((_PARTS, q, d), lambda i, j: (0, i, 0)),
      spec(rows.shape, lambda i, j: (0, 0)),
      spec(norms.shape, lambda i, j: (0,)),
      spec((1,), lambda i, j: (0,)),
    ),
    out_specs=(written, written, written),
    out_shape=tuple(
      jax.ShapeDtypeStruct(shape, x) for x in ('float32', 'float32', 'int32')
    ),
    cost_estimate=pl.CostEstimate(
      flops=2 * _PARTS * num_queries * rows.size,
      transcendentals=0,
      bytes_accessed=2 * rows.size,
    ),
    compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=3),
    interpret=backend.interprets_kernels(),
  )(jnp.stack(parts), rows, norms, jnp.reshape(count, 1).astype(jnp.int32))
  return tuple(x[:wanted] for x in found)


def _block(size: int, most: int) -> int:
  """The largest power of two that divides `size` and is at most `most`."""
  return min(most, size & -size)
