# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search, block by block, on however many devices there are.

Each block of the database is one matrix product and a two-stage top-k: the best
value of every group of columns, the best groups, then the best columns within
them. Rows are split over the devices, and only k candidates of each move. A
database that does not fit in device memory streams from its memory map.
"""

from collections.abc import Iterator
import functools
import json
import os
import pathlib

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

from retrieval.searchers import base

_GROUP = 32  # columns whose maximum stands for them in the first stage
_MARGIN = 16  # candidates beyond k that are scored again in float64
_MAX_BATCH = 1024


def _top_k(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Two-stage top-k of [q, p]; ties go to the lower column, as in lax.top_k."""
  rows, columns = scores.shape
  groups = columns // _GROUP
  if columns % _GROUP or groups <= 2 * k:
    return jax.lax.top_k(scores, k)
  grouped = scores.reshape(rows, groups, _GROUP)
  _, best = jax.lax.top_k(grouped.max(axis=-1), k)
  best = jnp.sort(best, axis=-1)  # ties again to the lower column
  within = jnp.take_along_axis(grouped, best[..., None], axis=1)
  values, at = jax.lax.top_k(within.reshape(rows, k * _GROUP), k)
  group = jnp.take_along_axis(best, at // _GROUP, axis=1)
  return values, group * _GROUP + at % _GROUP


@functools.partial(jax.jit, static_argnames=('mesh', 'k', 'metric'))
def _search_block(queries, block, num_rows, *, mesh, k, metric):
  """The k best rows of one block: scores and rows, each [q, k].

  Args:
    queries: [q, d] float32, on every device.
    block: [p, d] float32, rows split over the mesh.
    num_rows: [] int32; rows from there on are padding.
    mesh: one axis, 'rows'.
    k: at most the rows on one device.
    metric: see base.
  """

  @jax.shard_map(
    mesh=mesh, in_specs=(P(), P('rows'), P()), out_specs=(P(), P())
  )
  def search(queries, rows, num_rows):
    scores = jnp.einsum('qd,pd->qp', queries, rows, precision='highest')
    if metric == 'squared_l2':
      norms = jnp.einsum('pd,pd->p', rows, rows, precision='highest')
      scores = 2 * scores - norms[None]
    first = jax.lax.axis_index('rows') * rows.shape[0]
    valid = first + jnp.arange(rows.shape[0]) < num_rows
    scores = jnp.where(valid[None], scores, -jnp.inf)
    scores, ids = _top_k(scores, k)
    gather = functools.partial(
      jax.lax.all_gather, axis_name='rows', axis=1, tiled=True, to='invarying'
    )
    scores, best = jax.lax.top_k(gather(scores), k)
    return scores, jnp.take_along_axis(gather(ids + first), best, axis=1)

  return search(queries, block, num_rows)


class ExactSearcher:
  """Exact search over an array, a memory map or a sharded array."""

  name = 'exact'

  def __init__(
    self,
    vectors,
    metric: str = 'dot_product',
    *,
    block_rows: int = 65_536,
    resident_bytes: int = 2 << 30,
    devices: list[jax.Device] | None = None,
  ):
    """Checks the database; nothing is copied yet.

    Args:
      vectors: [n, d] floats; slices are read when needed.
      metric: 'dot_product' or 'squared_l2'.
      block_rows: rows of one matrix product, over all devices.
      resident_bytes: a database of at most so many bytes stays on the devices;
        a larger one streams.
      devices: default all of this process's.

    Raises:
      ValueError: for a bad metric, shape or value.
    """
    base.check_metric(metric)
    base.check_vectors(vectors)
    self._vectors = vectors
    self.metric = metric
    self.num_vectors, self.dimension = (int(n) for n in vectors.shape)
    self._devices = devices
    self._block_rows = block_rows
    self._resident = 4 * self.num_vectors * self.dimension <= resident_bytes

  @functools.cached_property
  def _mesh(self) -> jax.sharding.Mesh:
    devices = self._devices or jax.local_devices()
    return jax.make_mesh(
      (len(devices),), ('rows',), axis_types=(AxisType.Auto,), devices=devices
    )

  @functools.cached_property
  def _rows_per_block(self) -> int:
    """A multiple of devices x group, at most what the database needs."""
    unit = self._mesh.size * _GROUP
    wanted = min(self._block_rows, max(self.num_vectors, 1))
    return -(-wanted // unit) * unit

  def _read_block(self, low: int) -> tuple[jax.Array, np.ndarray]:
    rows = np.asarray(
      self._vectors[low : low + self._rows_per_block], np.float32
    )
    count = np.asarray(len(rows), np.int32)
    padding = self._rows_per_block - len(rows)
    if padding:
      rows = np.pad(rows, ((0, padding), (0, 0)))
    placed = jax.device_put(rows, NamedSharding(self._mesh, P('rows')))
    return placed, count

  @functools.cached_property
  def _blocks_on_device(self) -> list[tuple[int, jax.Array, np.ndarray]]:
    lows = range(0, self.num_vectors, self._rows_per_block)
    return [(low, *self._read_block(low)) for low in lows]

  def _blocks(self) -> Iterator[tuple[int, jax.Array, np.ndarray]]:
    if self._resident:
      yield from self._blocks_on_device
      return
    # One block ahead: the copy of the next overlaps with work on this one.
    ahead = None
    for low in range(0, self.num_vectors, self._rows_per_block):
      block = (low, *self._read_block(low))
      if ahead is not None:
        yield ahead
      ahead = block
    if ahead is not None:
      yield ahead

  def search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """See `base.Searcher`; ties go to the lower id."""
    queries = base.check_queries(queries, self.dimension, k)
    found = [
      self._search_batch(queries[low : low + _MAX_BATCH], k)
      for low in range(0, len(queries), _MAX_BATCH)
    ]
    found.append((np.zeros((0, k), np.int64), np.zeros((0, k), np.float32)))
    ids, scores = zip(*found, strict=True)
    return np.concatenate(ids), np.concatenate(scores)

  def _search_batch(self, queries, k):
    """Candidates of every block, then exact scores of the best of them."""
    count = len(queries)
    bucket = max(8, 1 << (count - 1).bit_length())
    padded = np.pad(queries, ((0, bucket - count), (0, 0)))
    fetch = k + _MARGIN
    keep = min(fetch, self.num_vectors)
    if fetch > self._rows_per_block // self._mesh.size:
      # A tiny database: every row is a candidate.
      everything = np.arange(self.num_vectors)
      ids = np.broadcast_to(everything, (count, self.num_vectors))
      return self._rescore(queries, ids, k)
    placed = jax.device_put(padded, NamedSharding(self._mesh, P()))
    ids = np.zeros((count, 0), np.int64)
    scores = np.zeros((count, 0), np.float32)
    for low, block, num_rows in self._blocks():
      values, rows = _search_block(
        placed,
        block,
        num_rows,
        mesh=self._mesh,
        k=fetch,
        metric=self.metric,
      )
      scores = np.concatenate([scores, np.asarray(values)[:count]], axis=1)
      ids = np.concatenate(
        [ids, np.asarray(rows, np.int64)[:count] + low], axis=1
      )
      order = np.argsort(-scores, axis=1, kind='stable')[:, :keep]
      scores = np.take_along_axis(scores, order, 1)
      ids = np.take_along_axis(ids, order, 1)
    return self._rescore(queries, ids, k)

  def _rescore(self, queries, ids, k):
    """Scores candidates in float64, so that equal rows really tie."""
    unique, at = np.unique(ids, return_inverse=True)
    rows = np.asarray(self._vectors[unique], np.float64)
    rows = rows[at.reshape(ids.shape)]
    wide = queries.astype(np.float64)[:, None]
    if self.metric == 'squared_l2':
      scores = -((rows - wide) ** 2).sum(-1)
    else:
      scores = (rows * wide).sum(-1)
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    return base.pad(
      np.take_along_axis(ids, order, 1),
      np.take_along_axis(scores, order, 1),
      k,
    )

  def save(self, path: str | os.PathLike) -> None:
    """Writes a copy of the vectors, block by block."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    copy = np.lib.format.open_memmap(
      path / 'vectors.npy',
      mode='w+',
      dtype=np.float32,
      shape=(self.num_vectors, self.dimension),
    )
    for low in range(0, self.num_vectors, self._block_rows):
      rows = slice(low, low + self._block_rows)
      copy[rows] = self._vectors[rows]
    copy.flush()
    fields = {'name': self.name, 'metric': self.metric}
    (path / 'searcher.json').write_text(json.dumps(fields) + '\n')

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'ExactSearcher':
    """Loads what `save` wrote, memory-mapped.

    Raises:
      ValueError: when the file is cut short or no array.
    """
    path = pathlib.Path(path)
    fields = json.loads((path / 'searcher.json').read_text())
    try:
      vectors = np.load(path / 'vectors.npy', mmap_mode='r')
    except (ValueError, OSError) as e:
      raise ValueError(f'{path / "vectors.npy"}: damaged ({e}).') from None
    return cls(vectors, fields['metric'])
