# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Product and top-k of one block of a database, on all devices.

The scores of a small block are kept. A large one is read once, tile by tile, and of
each group of its rows three numbers stay: the best score, its place and the second
score.

Q queries, P rows of a block, D dimension, F candidates kept of each query, T rows of
a tile, G rows of a group.
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
# Rows of a tile, whose scores stay in fast memory; the first is for GPUs.
_GPU_TILE, _TILE = 16_384, 8192
_TILE_GROUPS = (64, 32)  # rows of a tile that share one maximum; they lie apart
# Kept beyond the number of candidates, or of groups with candidates, that is expected
# where rows lie in random order.
_SPARE = 16
# Larger groups serve where at most one row in so many is scored again.
_AGAIN = 512
_AGAIN_BYTES = 1 << 29  # of the rows that are scored again at a time
_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Block(NamedTuple):
  """Some rows of the database on the devices."""

  # [P, D] float32, float16 or bfloat16, split over the mesh; zeros after the
  # last row
  rows: jax.Array
  norms: jax.Array  # [P] float32 squared norms, split over the mesh
  largest: jax.Array  # [] float32 largest of the norms
  count: np.ndarray  # [] int32 number of real rows


class Found(NamedTuple):
  """The best rows, best first."""

  scores: jax.Array  # [Q, F] float32; -inf where there are fewer
  rows: jax.Array  # [Q, F] int32
  rest: jax.Array  # [Q] float32; no other row scores more


def make_mesh(devices: list[jax.Device]) -> jax.sharding.Mesh:
  """Make a mesh with one axis, 'rows'."""
  return jax.make_mesh(
    (len(devices),), ('rows',), axis_types=(AxisType.Auto,), devices=devices
  )


def device_dtype(dtype: npt.DTypeLike) -> np.dtype:
  """Return the type of rows on the devices: float32, or their own half."""
  return np.dtype(dtype if dtype in _HALVES else np.float32)


def unit_rows(mesh: jax.sharding.Mesh) -> int:
  """Return the number that divides the rows of every block."""
  return mesh.size * _tile(mesh)


def _tile(mesh: jax.sharding.Mesh) -> int:
  """Return the rows of a tile."""
  is_gpu = mesh.devices.flat[0].platform not in ('cpu', 'tpu')
  return _GPU_TILE if is_gpu else _TILE


def place_block(
  read: Callable[[int, int], np.ndarray],
  count: int,
  size: int,
  mesh: jax.sharding.Mesh,
) -> Block:
  """Place rows on the devices, padded to `size`; each process reads its own.

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
  return Block(rows, *_norms(rows), np.int32(count))


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
  norms = jnp.einsum('pd,pd->p', rows, rows, precision='highest')
  return norms, norms.max()


def _products(queries, rows):
  """Return the products [Q, P] of float32 queries, to float32 rounding."""
  if backend.is_cpu() or rows.dtype != jnp.bfloat16:
    rows = rows.astype(jnp.float32)
    return jnp.einsum('qd,pd->qp', queries, rows, precision='highest')
  if not backend.is_tpu():  # six products of parts in bfloat16
    return jnp.einsum(
      'qd,pd->qp',
      queries,
      rows.astype(jnp.float32),
      precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
    )
  # Three bfloat16 numbers hold a float32 number, and rows stay as they are.
  parts, left = [], queries
  for _ in range(3):
    parts.append(left.astype(jnp.bfloat16))
    left -= parts[-1].astype(jnp.float32)
  found = jnp.einsum(
    'sqd,pd->sqp', jnp.stack(parts), rows, preferred_element_type=jnp.float32
  )
  return found.sum(axis=0)


def _scores(queries, rows, norms, left, metric):
  """Return scores [Q, P] without the query's own norm.

  Args:
    left: number of real rows from the first of these on.
  """
  scores = _products(queries, rows)
  if metric == 'squared_l2':
    scores = 2 * scores - norms[None]
  return jnp.where(jnp.arange(len(rows)) < left, scores, -jnp.inf)


def top_k(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Return the two-stage top-k of [Q, P]; ties go to the lower column.

  The k groups with the best maxima contain the k best columns. Groups of about
  sqrt(P / k) columns leave the fewest numbers to sort, P / G + k G.
  """
  rows, columns = scores.shape
  group = 1 << (max(1, columns // k).bit_length() // 2)
  group = math.gcd(columns, min(group, GROUP))
  if group < _LEAST_GROUP or columns // group <= 2 * k:
    return tuple(jax.lax.top_k(scores, k))
  grouped = scores.reshape(rows, columns // group, group)
  _, best = jax.lax.top_k(grouped.max(axis=-1), k)
  best = jnp.sort(best, axis=-1)  # Ties go to the lower column again.
  within = jnp.take_along_axis(grouped, best[..., None], axis=1)
  values, at = jax.lax.top_k(within.reshape(rows, k * group), k)
  chosen = jnp.take_along_axis(best, at // group, axis=1)
  return values, chosen * group + at % group


def _best_of_scores(queries, rows, norms, count, metric, fetch):
  """Return the best of all scores."""
  scores = _scores(queries, rows, norms, count, metric)
  values, at = top_k(scores, fetch)
  return Found(values, at, _least(values))


def _best_of_tiles(queries, rows, norms, count, metric, fetch, tile):
  """Return the best of rows that are read once, tile by tile.

  A row can be missing only in a group with another row that is as good. The groups
  with the best second scores are scored again, whole; the next second score bounds
  what is left out.
  """
  for group in _TILE_GROUPS:
    groups, columns = len(rows) // group, tile // group
    expected = fetch * fetch / groups / 2  # groups of random rows
    again = min(groups, int(expected + 4 * expected**0.5) + _SPARE)
    if again * group * _AGAIN <= len(rows):
      break

  tiles_gpu = None
  if not backend.is_cpu():
    from retrieval.searchers import tiles_gpu
  if tiles_gpu and tiles_gpu.suits(rows, columns):
    best, second, at = tiles_gpu.summarize(
      queries, rows, norms, count, metric=metric, tile=tile, columns=columns
    )
  else:
    best, second, at = _summarize(
      queries, rows, norms, count, metric, tile, columns
    )

  def row(name, at):
    number, column = name // columns, name % columns
    return (number * group + at) * columns + column

  values, chosen = top_k(best, fetch)
  places = jnp.take_along_axis(at, chosen, axis=1).astype(jnp.int32)
  seconds, doubled = top_k(second, again)
  members = row(doubled[..., None], jnp.arange(group))
  new = jnp.arange(group) != jnp.take_along_axis(at, doubled, 1)[..., None]
  members = members.reshape(len(queries), -1)

  def score(x):
    query, ids = x
    return _scores(query[None], rows[ids], norms[ids], len(ids), metric)[0]

  row_bytes = 4 * rows.shape[1]
  at_once = max(1, _AGAIN_BYTES // (members.shape[1] * row_bytes))
  if at_once < len(queries):
    scores = jax.lax.map(score, (queries, members), batch_size=at_once)
  else:
    scores = jax.vmap(score)((queries, members))
  real = new.reshape(members.shape) & (members < count)
  scores = jnp.where(real, scores, -jnp.inf)
  return _best(
    jnp.concatenate([values, scores], axis=1),
    jnp.concatenate([row(chosen, places), members], axis=1),
    jnp.maximum(_least(values), _least(seconds)),
    fetch,
  )


def _summarize(queries, rows, norms, count, metric, tile, columns):
  """Return what `tiles_gpu.summarize` does, by a loop over tiles."""
  tiles = len(rows) // tile

  def one(x):
    number, rows, norms = x
    scores = _scores(queries, rows, norms, count - number * tile, metric)
    scores = scores.reshape(len(queries), -1, columns)
    at = scores.argmax(axis=1)
    others = jnp.arange(scores.shape[1])[:, None] != at[:, None]
    second = jnp.where(others, scores, -jnp.inf).max(axis=1)
    return scores.max(axis=1), second, at.astype(jnp.uint8)

  parts = rows.reshape(tiles, tile, -1), norms.reshape(tiles, tile)
  found = jax.lax.map(one, (jnp.arange(tiles), *parts))
  return [jnp.moveaxis(x, 0, 1).reshape(len(queries), -1) for x in found]


def _least(best):
  """Return the last of each row; XLA on CPUs sorts all if its place is asked."""
  return best.min(axis=1)


def _best(scores, rows, rest, fetch):
  """Keep the best; earlier ones win ties."""
  scores, at = jax.lax.top_k(scores, fetch)
  rows = jnp.take_along_axis(rows, at, axis=1)
  return Found(scores, rows, jnp.maximum(rest, _least(scores)))


@functools.partial(jax.jit, static_argnames=('mesh', 'metric', 'fetch'))
def search_block(
  queries: jax.Array,
  block: Block,
  *,
  mesh: jax.sharding.Mesh,
  metric: str,
  fetch: int,
) -> Found:
  """Find the best rows of one block.

  Only the candidates of each device move between devices. Queries [Q, D]
  float32 are on every device.
  """

  @jax.shard_map(
    mesh=mesh,
    in_specs=(P(), P('rows'), P('rows'), P()),
    out_specs=P(None, 'rows'),
    check_vma=False,
  )
  def search(queries, rows, norms, count):
    first = jax.lax.axis_index('rows') * len(rows)
    # Few devices hold much more than their part of the best; `rest` tells.
    kept = min(fetch, 2 * -(-fetch // mesh.size) + _SPARE)
    tile = _tile(mesh)
    if len(rows) > 2 * kept * _TILE_GROUPS[0]:
      found = _best_of_tiles(
        queries, rows, norms, count - first, metric, kept, tile
      )
    else:
      found = _best_of_scores(
        queries, rows, norms, count - first, metric, min(fetch, len(rows))
      )
    return found._replace(rows=found.rows + first, rest=found.rest[:, None])

  found = search(queries, block.rows, block.norms, block.count)
  scores, rows, rest = jax.lax.with_sharding_constraint(
    found, NamedSharding(mesh, P())
  )
  return _best(scores, rows, rest.max(axis=1), min(fetch, scores.shape[1]))
