# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Product and top-k of one block of a database, on all devices.

Q queries, P rows of a block, D dimension, F candidates kept of each query.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import ml_dtypes
import numpy as np
import numpy.typing as npt

GROUP = 128  # columns that share one maximum in the first stage
_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Block(NamedTuple):
  """Some rows of the database on the devices."""

  # [P, D] float32, float16 or bfloat16, split over the mesh; zeros after the
  # last row
  rows: jax.Array
  norms: jax.Array  # [P] float32 squared norms, split over the mesh
  count: np.ndarray  # [] int32 number of real rows
  number: np.ndarray  # [] int32 number of the block


class Best(NamedTuple):
  """The best candidates so far, best first; ties by lower block and row."""

  scores: jax.Array  # [Q, F] float32; -inf where there are fewer
  # [Q, F] int32 number of the block; JAX has no int64 for whole ids
  blocks: jax.Array
  rows: jax.Array  # [Q, F] int32 row within the block


def make_mesh(devices: list[jax.Device]) -> jax.sharding.Mesh:
  """Make a mesh with one axis, 'rows'."""
  return jax.make_mesh(
    (len(devices),), ('rows',), axis_types=(AxisType.Auto,), devices=devices
  )


def device_dtype(dtype: npt.DTypeLike) -> np.dtype:
  """Return the type of rows on the devices: float32, or their own half."""
  return np.dtype(dtype if dtype in _HALVES else np.float32)


def place_block(
  rows: np.ndarray, size: int, number: int, mesh: jax.sharding.Mesh
) -> Block:
  """Pad rows to `size` and split them over the mesh."""
  rows = np.asarray(rows, device_dtype(rows.dtype))
  count = len(rows)
  if count < size:
    rows = np.pad(rows, ((0, size - count), (0, 0)))
  placed = jax.device_put(rows, NamedSharding(mesh, P('rows')))
  return Block(placed, _norms(placed), np.int32(count), np.int32(number))


def place_queries(
  queries: np.ndarray, mesh: jax.sharding.Mesh, fetch: int
) -> tuple[jax.Array, Best]:
  """Place queries, padded to a power of two, with an empty `Best`."""
  size = max(8, 1 << (len(queries) - 1).bit_length())
  queries = np.pad(queries, ((0, size - len(queries)), (0, 0)))
  best = Best(
    np.full((size, fetch), -np.inf, np.float32),
    np.zeros((size, fetch), np.int32),
    np.zeros((size, fetch), np.int32),
  )
  return jax.device_put((queries, best), NamedSharding(mesh, P()))


@jax.jit
def _norms(rows):
  rows = rows.astype(jnp.float32)
  return jnp.einsum('pd,pd->p', rows, rows, precision='highest')


def _scores(queries, rows, norms, count, metric):
  """Return scores [Q, rows here] without the query's own norm, and row 0's id."""
  rows = rows.astype(jnp.float32)
  scores = jnp.einsum('qd,pd->qp', queries, rows, precision='highest')
  if metric == 'squared_l2':
    scores = 2 * scores - norms[None]
  first = jax.lax.axis_index('rows') * rows.shape[0]
  valid = first + jnp.arange(rows.shape[0]) < count
  return jnp.where(valid[None], scores, -jnp.inf), first


def top_k(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Return the two-stage top-k of [Q, P]; ties go to the lower column.

  The k groups with the best maxima contain the k best columns.
  """
  rows, columns = scores.shape
  groups = columns // GROUP
  if columns % GROUP or groups <= 2 * k:
    return tuple(jax.lax.top_k(scores, k))
  grouped = scores.reshape(rows, groups, GROUP)
  _, best = jax.lax.top_k(grouped.max(axis=-1), k)
  best = jnp.sort(best, axis=-1)  # Ties go to the lower column again.
  within = jnp.take_along_axis(grouped, best[..., None], axis=1)
  values, at = jax.lax.top_k(within.reshape(rows, k * GROUP), k)
  group = jnp.take_along_axis(best, at // GROUP, axis=1)
  return values, group * GROUP + at % GROUP


@functools.partial(jax.jit, static_argnames=('mesh', 'metric'))
def search_block(
  queries: jax.Array,
  block: Block,
  best: Best,
  *,
  mesh: jax.sharding.Mesh,
  metric: str,
) -> Best:
  """Merge the best rows of one block into the best of the blocks before it.

  Only the candidates of each device move between devices. Queries [Q, D]
  float32 are on every device.
  """
  fetch = best.scores.shape[1]

  @jax.shard_map(
    mesh=mesh,
    in_specs=(P(), P('rows'), P('rows'), P()),
    out_specs=(P(None, 'rows'), P(None, 'rows')),
  )
  def search(queries, rows, norms, count):
    scores, first = _scores(queries, rows, norms, count, metric)
    scores, ids = top_k(scores, min(fetch, rows.shape[0]))
    return scores, ids + first

  found = search(queries, block.rows, block.norms, block.count)
  everywhere = jax.sharding.NamedSharding(mesh, P())
  scores, rows = jax.lax.with_sharding_constraint(found, everywhere)
  joined = Best(
    jnp.concatenate([best.scores, scores], axis=1),
    jnp.concatenate([best.blocks, jnp.full_like(rows, block.number)], axis=1),
    jnp.concatenate([best.rows, rows], axis=1),
  )
  scores, at = jax.lax.top_k(joined.scores, fetch)
  return Best(
    scores,
    jnp.take_along_axis(joined.blocks, at, axis=1),
    jnp.take_along_axis(joined.rows, at, axis=1),
  )


@functools.partial(jax.jit, static_argnames=('mesh', 'metric'))
def count_block(
  queries: jax.Array,
  block: Block,
  threshold: jax.Array,
  *,
  mesh: jax.sharding.Mesh,
  metric: str,
) -> jax.Array:
  """Count the rows of a block with at least the threshold score: [Q] int32."""

  @jax.shard_map(
    mesh=mesh, in_specs=(P(), P('rows'), P('rows'), P(), P()), out_specs=P()
  )
  def count(queries, rows, norms, count, threshold):
    scores, _ = _scores(queries, rows, norms, count, metric)
    above = (scores >= threshold[:, None]).sum(axis=1, dtype=jnp.int32)
    return jax.lax.psum(above, 'rows')

  return count(queries, block.rows, block.norms, block.count, threshold)
