# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search: on CPUs by `matrix_search`, on accelerators by `block_search`.

An accelerator finds k + 16 candidates of each query in float32, which are scored again
in float64, with ties by the lower id. A database beyond the device memory streams from
its memory map, once for each call.

Over devices of several processes each holds its share of the rows, and `search` is
a call of all processes together.
"""

from collections.abc import Callable, Iterator
import functools
import os
import pathlib
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

from retrieval.searchers import (
  base,
  block_search,
  matrix_search,
  saved_vectors,
  subset as subset_lib,
)
from retrieval.store import sharded_array

_MARGIN = 16  # candidates beyond k
_MOST_ROWS = 1 << 30  # of a block; its rows are numbered with 32 bits
_FILTERS = 4  # whose rows are ready for the next search
_GATHERED_BYTES = 128 << 20  # of a filter's rows in memory


class ExactSearcher:
  """Exact search over an array, a memory map or a sharded array."""

  name, is_exact = 'exact', True

  def __init__(
    self,
    vectors,
    metric: str = 'dot_product',
    *,
    resident_bytes: int | None = None,
    devices: list[jax.Device] | None = None,
    check: bool = True,
  ):
    """Check the database; copy nothing yet.

    Args:
      vectors: [n, d] floats, read slice by slice. Rows of bfloat16 take half the
        memory of others on the devices.
      metric: 'dot_product' or 'squared_l2'.
      resident_bytes: size of the largest database that stays on the devices; a
        larger one streams in blocks of half as much. None is two fifths of the
        devices' free memory, or 2 GiB where it is unknown.
      devices: devices that search; None is all of this process, and its CPUs
        search without a program. With devices of several processes, all of these
        call `search` together, with as many queries each and the same k.
      check: whether to read the database once for values that are not finite.

    Raises:
      ValueError: for a bad metric, shape, type or value.
    """
    base.check_metric(metric)
    self.num_vectors, self.dimension = base.check_vectors(vectors, values=check)
    self._vectors = vectors
    self.metric, self.unit = metric, base.UNITS[metric]
    self._devices = devices
    self._resident_bytes = resident_bytes

  def over(
    self, devices: list[jax.Device] | None, vectors: Any = None
  ) -> 'ExactSearcher':
    """Return a searcher over other devices, of the same rows or of some of them."""
    return ExactSearcher(
      self._vectors if vectors is None else vectors,
      self.metric,
      resident_bytes=self._resident_bytes,
      devices=devices,
      check=False,
    )

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> base.Hits:
    """Find the k best rows of each query; ties go to the lower id.

    Few rows are searched as an array, and so are all rows of a subset on devices.
    """
    queries = base.check_queries(queries, self.dimension, k)
    count = min(k, self.num_vectors)
    if subset is not None:
      subset.check(self.num_vectors)
      count = min(k, len(subset.rows))
    if not len(queries) or not count:
      return base.nothing(len(queries), k)
    on_cpu = not self._devices and jax.local_devices()[0].platform == 'cpu'
    if subset is not None and (subset.are_few or not on_cpu):
      ids, scores = self._among(subset).search(queries, k)
      return subset_lib.take(subset.rows[None], ids, -1), scores
    if on_cpu:
      mask = None if subset is None else subset.mask
      return base.pad(*self._on_cpu(queries, count, mask), k)
    with jax.set_mesh(self._mesh):  # The caller may have set another mesh.
      ids = self._candidates(self._of_all(queries), count)
      if self._is_shared:
        ids = np.split(ids, jax.process_count())[jax.process_index()]
      return base.pad(*self.best_of(queries, ids, count), k)

  @functools.cached_property
  def _among(self) -> Callable[[subset_lib.Subset], 'ExactSearcher']:
    """Searchers of the rows of the latest filters."""
    row_bytes = np.dtype(self._vectors.dtype).itemsize * self.dimension

    @functools.lru_cache(_FILTERS)
    def among(subset):
      rows = sharded_array.SelectedRows(self._vectors, subset.rows)
      small = len(rows) * row_bytes <= _GATHERED_BYTES
      return self.over(self._devices, rows[:] if small else rows)

    return among

  def score(self, queries: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return exact float64 scores [b, c] of rows [b, c]; -inf for id -1.

    Raises:
      ValueError: for queries that do not fit, or ids of another shape or no row.
    """
    queries, ids = base.check_queries(queries, self.dimension), np.asarray(ids)
    is_row = ids.dtype.kind in 'iu' and (ids < self.num_vectors).all()
    if ids.ndim != 2 or len(ids) != len(queries) or not is_row:
      raise ValueError(
        f'ids of shape {ids.shape} and type {ids.dtype}: expected rows '
        f'[{len(queries)}, c], whole numbers below {self.num_vectors}.'
      )
    flat = ids.astype(np.int64).reshape(-1)
    owners = np.repeat(np.arange(len(queries)), np.shape(ids)[1])
    scores = np.full(flat.shape, -np.inf)
    (real,) = np.nonzero(flat >= 0)
    scores[real] = matrix_search.score_pairs(
      self._vectors, self.metric, queries, owners[real], flat[real]
    )
    return scores.reshape(np.shape(ids))

  def best_of(self, queries: np.ndarray, ids: np.ndarray, k: int) -> base.Hits:
    """Return the best k of candidates [q, c] in float64; ties by the lower id."""
    return base.best(ids, self.score(queries, ids), k)

  @functools.cached_property
  def _on_cpu(self) -> matrix_search.MatrixSearch:
    return matrix_search.MatrixSearch(self._vectors, self.metric)

  @functools.cached_property
  def _mesh(self) -> jax.sharding.Mesh:
    return block_search.make_mesh(self._devices or jax.local_devices())

  @functools.cached_property
  def _is_shared(self) -> bool:
    """Whether devices of other processes search, too."""
    return len({d.process_index for d in self._mesh.devices.flat}) > 1

  def _of_all(self, x: np.ndarray) -> np.ndarray:
    """Return the arrays [b, ...] of all processes, joined."""
    if not self._is_shared:
      return x
    return np.concatenate(multihost_utils.process_allgather(x))

  @functools.cached_property
  def _limit(self) -> int:
    """Bytes that the database may take on the devices."""
    if self._resident_bytes is not None:
      return self._resident_bytes
    limit = _free_bytes(self._mesh.local_devices)
    # Float64 and int64 do not pass between processes.
    mebibytes = self._of_all(np.array([limit >> 20], np.int32))
    return (int(mebibytes.min()) * len(mebibytes)) << 20

  @functools.cached_property
  def _row_bytes(self) -> int:
    dtype = block_search.device_dtype(self._vectors.dtype)
    return dtype.itemsize * self.dimension

  @property
  def _resident(self) -> bool:
    return self._row_bytes * self.num_vectors <= self._limit

  @functools.cached_property
  def _rows_per_block(self) -> int:
    """Rows of a block, not above the database but for rounding."""
    rows = min(self.num_vectors, _MOST_ROWS)
    if not self._resident:  # One is searched while another is read.
      rows = min(rows, max(1, self._limit // 2 // self._row_bytes))
    unit = block_search.unit_rows(self._mesh)
    return -(-rows // unit) * unit

  @functools.cached_property
  def _blocks_on_device(self) -> list[block_search.Block]:
    return list(self._read_blocks())

  def _read_blocks(self) -> Iterator[block_search.Block]:
    size = self._rows_per_block
    for low in range(0, self.num_vectors, size):
      count = min(size, self.num_vectors - low)

      def read(start, stop, low=low):
        return np.asarray(self._vectors[low + start : low + stop])

      yield block_search.place_block(read, count, size, self._mesh)

  def _candidates(self, queries: np.ndarray, k: int) -> np.ndarray:
    """Return the ids [q, n] of the best float32 rows, -1 for none."""
    num_best = num_fetched(k, self.num_vectors)
    placed = block_search.place_queries(queries, self._mesh)
    made = []
    blocks = self._blocks_on_device if self._resident else self._read_blocks()
    for block in blocks:
      if made and not self._resident:  # Read one block while searching another.
        jax.block_until_ready(made[-1])
      made.append(
        block_search.search_block(
          placed, block, mesh=self._mesh, metric=self.metric, num_best=num_best
        )
      )
    scores, rows = zip(*jax.device_get(made), strict=True)
    ids = [
      np.where(
        np.isneginf(values), -1, row + np.int64(i * self._rows_per_block)
      )
      for i, (values, row) in enumerate(zip(scores, rows, strict=True))
    ]
    scores, ids = (np.concatenate(x, 1)[: len(queries)] for x in (scores, ids))
    order = np.argsort(-scores, axis=1, kind='stable')[:, :num_best]
    return np.take_along_axis(ids, order, axis=1)

  def save(self, path: str | os.PathLike) -> None:
    """Write a copy of the vectors, or a reference to their published store."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    saved = saved_vectors.save(path, self._vectors)
    base.write_fields(path, name=self.name, metric=self.metric, **saved)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'ExactSearcher':
    """Load a saved searcher with memory-mapped vectors.

    Raises:
      FileNotFoundError: when files are missing.
      ValueError: when the vectors are damaged or replaced, or their store is gone.
    """
    path = pathlib.Path(path)
    fields = base.read_fields(path)
    vectors = saved_vectors.load(path, fields)
    return cls(vectors, fields['metric'], check=False)


def num_fetched(k: int, num_vectors: int) -> int:
  """Return the number of candidates for the k best rows.

  Rounding up keeps the number of compiled programs small.
  """
  return min(num_vectors, -(-(k + _MARGIN) // 32) * 32)


def _free_bytes(devices) -> int:
  """Return the device memory that a database may take."""
  free = 0
  for device in devices:
    stats = device.memory_stats() or {}
    if 'bytes_limit' not in stats:
      return 2 << 30
    free += stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  return free * 2 // 5
