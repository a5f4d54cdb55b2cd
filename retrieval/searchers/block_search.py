# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Product and top-k of one block of a database, on all devices.

Q queries, P rows of a block, D dimension, F best rows of each query.
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import ml_dtypes
import numpy as np
import numpy.typing as npt

from retrieval.kernels import backend

GROUP = 128  # columns that share one maximum in the first stage, at most
_LEAST_GROUP = 4  # smaller groups save nothing
_UNIT = 8192  # divides the rows of a device, so that groups do
_SCORES = 1 << 28  # held at a time


class Block(NamedTuple):
  """Some rows of the database on the devices."""

  # [P, D] float32 or bfloat16, split over the mesh; zeros after the last row
  rows: jax.Array
  norms: jax.Array  # [P] float32 squared norms, split over the mesh
  count: np.ndarray  # [] int32 number of real rows


def make_mesh(devices: list[jax.Device]) -> jax.sharding.Mesh:
  """Make a mesh with one axis, 'rows'."""
  return jax.make_mesh(
    (len(devices),), ('rows',), axis_types=(AxisType.Auto,), devices=devices
  )


def device_dtype(dtype: npt.DTypeLike) -> np.dtype:
  """Return the type of rows on the devices."""
  return np.dtype(dtype if dtype == ml_dtypes.bfloat16 else np.float32)


def unit_rows(mesh: jax.sharding.Mesh) -> int:
  """Return the number that divides the rows of every block."""
  return mesh.size * _UNIT


def place_block(
  read: Callable[[int, int], np.ndarray],
  count: int,
  size: int,
  mesh: jax.sharding.Mesh,
) -> Block:
  """Place rows on the devices, padded to `size`; each process reads a part.

  Args:
    read: (low, high) -> rows [high - low, D].
    count: number of rows.
  """
  first = read(0, min(1, count))
  dtype = device_dtype(first.dtype)

  def shard(index):
    low, high = index[0].start or 0, index[0].stop or size
    rows = np.asarray(read(min(low, count), min(high, count)), dtype)
    return np.pad(rows, ((0, high - low - len(rows)), (0, 0)))

  rows = jax.make_array_from_callback(
    (size, first.shape[1]), NamedSharding(mesh, P('rows')), shard
  )
  return Block(rows, _norms(rows), np.int32(count))


def num_placed(queries: int) -> int:
  """Return the rows of padded queries: a power of two, at least 8."""
  return max(8, 1 << (queries - 1).bit_length())


def place_queries(queries: np.ndarray, mesh: jax.sharding.Mesh) -> jax.Array:
  """Place queries, padded, on each device; each process holds them."""
  size = num_placed(len(queries))
  queries = np.pad(queries, ((0, size - len(queries)), (0, 0)))
  return jax.make_array_from_callback(
    queries.shape, NamedSharding(mesh, P()), lambda index: queries[index]
  )


@jax.jit
def _norms(rows):
  rows = rows.astype(jnp.float32)
  return jnp.einsum('pd,pd->p', rows, rows, precision='highest')


def _products(query, rows):
  """Return the products [P] of a float32 query, to float32 rounding."""
  if backend.is_cpu() or rows.dtype == jnp.float32:
    rows = rows.astype(jnp.float32)
    return jnp.einsum('d,pd->p', query, rows, precision='highest')
  # Three bfloat16 numbers hold a float32 number, and rows stay as they are.
  total = 0
  for _ in range(3):
    part = query.astype(jnp.bfloat16)
    query -= part.astype(jnp.float32)
    total += jnp.einsum(
      'd,pd->p', part, rows, preferred_element_type=jnp.float32
    )
  return total


def top_k(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Return the two-stage top-k of [P]; ties go to the lower place.

  The k groups with the best maxima contain the k best scores. Groups of about
  sqrt(P / k) leave the fewest numbers to sort, P / G + k G.
  """
  count = len(scores)
  group = 1 << (max(1, count // k).bit_length() // 2)
  group = math.gcd(count, min(group, GROUP))
  if group < _LEAST_GROUP or count // group <= 2 * k:
    return tuple(jax.lax.top_k(scores, k))
  grouped = scores.reshape(count // group, group)
  _, best = jax.lax.top_k(grouped.max(axis=1), k)
  best = jnp.sort(best)  # Ties go to the lower place again.
  values, at = jax.lax.top_k(grouped[best].reshape(-1), k)
  return values, best[at // group] * group + at % group


@functools.partial(jax.jit, static_argnames=('mesh', 'metric', 'num_best'))
def search_block(
  queries: jax.Array,
  block: Block,
  *,
  mesh: jax.sharding.Mesh,
  metric: str,
  num_best: int,
) -> tuple[jax.Array, jax.Array]:
  """Find the best rows of one block.

  Only the best of each device move between devices. Queries [Q, D] float32 are on
  every device.

  Returns:
    Float32 scores [Q, F] without the query's norm, best first, -inf where there are
    fewer; and their rows [Q, F] int32.
  """

  @jax.shard_map(
    mesh=mesh,
    in_specs=(P(), P('rows'), P('rows'), P()),
    out_specs=P(None, 'rows'),
    check_vma=False,
  )
  def search(queries, rows, norms, count):
    first = jax.lax.axis_index('rows') * len(rows)

    def one(query):
      scores = _products(query, rows)
      if metric == 'squared_l2':
        scores = 2 * scores - norms
      is_row = first + jnp.arange(len(rows)) < count
      scores = jnp.where(is_row, scores, -jnp.inf)
      values, at = top_k(scores, min(num_best, len(rows)))
      return values, first + at

    together = min(len(queries), max(1, _SCORES // len(rows)))
    return jax.lax.map(one, queries, batch_size=together)

  scores, rows = jax.lax.with_sharding_constraint(
    search(queries, block.rows, block.norms, block.count),
    NamedSharding(mesh, P()),
  )
  scores, at = jax.lax.top_k(scores, min(num_best, scores.shape[1]))
  return scores, jnp.take_along_axis(rows, at, axis=1)
