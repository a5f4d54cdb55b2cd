# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search, block by block, on all devices.

Float32 products on the devices, or of ScaNN on one CPU, choose candidates, whose scores are then
computed in float64. A bound on float32 rounding tells whether another row could
belong to the best; if so, a second pass counts and fetches such rows. The
result is that of float64, with ties by the lower id. A database beyond the
device memory streams from its memory map, once for each call.

Over devices of several processes each holds its share of the rows, and `search` is
a call of all processes together.
"""

from collections.abc import Iterator
import functools
import json
import os
import pathlib

import jax
from jax.experimental import multihost_utils
import numpy as np

from retrieval.searchers import base, block_search, saved_vectors, scann

_MARGIN = 16  # candidates beyond k
_MAX_BATCH = 1024
_BLOCK_ROWS = 65_536  # of one matrix product on a CPU
_MAX_CANDIDATES = 1 << 22  # of one pass that fetches unusually many
_MOST_ROWS = 1 << 30  # of a block; its rows are numbered with 32 bits
_PAIRS = 2048  # of query and row scored in float64 at a time
_UNIT_ROUNDOFF = 2.0**-24


class ExactSearcher:
  """Exact search over an array, a memory map or a sharded array."""

  name = 'exact'

  def __init__(
    self,
    vectors,
    metric: str = 'dot_product',
    *,
    block_rows: int | None = None,
    resident_bytes: int | None = None,
    devices: list[jax.Device] | None = None,
    check: bool = True,
  ):
    """Check the database; copy nothing yet.

    Args:
      vectors: [n, d] floats, read slice by slice. float16 and bfloat16 rows
        take half the memory of float32 rows on the devices.
      metric: 'dot_product' or 'squared_l2'.
      block_rows: rows of one program over all devices; None is 65,536 on CPUs, and
        elsewhere all of them, or as many as half of `resident_bytes` holds.
      resident_bytes: size of the largest database that stays on the devices; a
        larger one streams. None is two fifths of the devices' free memory, or 2
        GiB where it is unknown.
      devices: devices that search; None is all of this process. With those of
        several processes, all of them call `search` together, with as many queries
        each and the same k.
      check: whether to read the database once for values that are not finite.

    Raises:
      ValueError: for a bad metric, shape or value.
    """
    base.check_metric(metric)
    if block_rows is not None and block_rows < 1:
      raise ValueError(f'block_rows={block_rows}: expected at least 1.')
    base.check_vectors(vectors, values=check)
    self._vectors = vectors
    self.metric = metric
    self.num_vectors, self.dimension = (int(n) for n in vectors.shape)
    self._devices = devices
    self._block_rows = block_rows
    self._resident_bytes = resident_bytes
    self._largest_norm = 0.0

  @functools.cached_property
  def _mesh(self) -> jax.sharding.Mesh:
    return block_search.make_mesh(self._devices or jax.local_devices())

  def over(self, devices: list[jax.Device]) -> 'ExactSearcher':
    """Return a searcher of the same rows over other devices."""
    return ExactSearcher(
      self._vectors,
      self.metric,
      block_rows=self._block_rows,
      resident_bytes=self._resident_bytes,
      devices=devices,
      check=False,
    )

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
    limit = self._resident_bytes
    if limit is None:
      limit = _free_bytes(self._mesh.local_devices)
      # Float64 and int64 do not pass between processes.
      mebibytes = self._of_all(np.array([limit >> 20], np.int32))
      limit = (int(mebibytes.min()) * len(mebibytes)) << 20
    return limit

  @functools.cached_property
  def _row_bytes(self) -> int:
    dtype = block_search.device_dtype(self._vectors.dtype)
    return dtype.itemsize * self.dimension

  @functools.cached_property
  def _rows_per_block(self) -> int:
    """Rows of a block, not above the database but for rounding."""
    wanted = self._block_rows
    if wanted is None and self._mesh.devices.flat[0].platform == 'cpu':
      wanted = _BLOCK_ROWS
    if wanted is None:
      wanted = _MOST_ROWS
      if not self._resident:  # One is searched while another is read.
        wanted = max(1, self._limit // 2 // self._row_bytes)
    unit = block_search.unit_rows(self._mesh)
    return -(-min(wanted, max(self.num_vectors, 1)) // unit) * unit

  @functools.cached_property
  def _resident(self) -> bool:
    return self._row_bytes * self.num_vectors <= self._limit

  @functools.cached_property
  def _blocks_on_device(self) -> list[block_search.Block]:
    return list(self._read_blocks())

  def _read_blocks(self) -> Iterator[block_search.Block]:
    size = self._rows_per_block
    for number, low in enumerate(range(0, self.num_vectors, size)):
      count = min(size, self.num_vectors - low)

      def read(start, stop, low=low):
        return np.asarray(self._vectors[low + start : low + stop])

      yield block_search.place_block(read, count, size, number, self._mesh)

  def _blocks(self) -> Iterator[block_search.Block]:
    yield from self._blocks_on_device if self._resident else self._read_blocks()

  def search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Find the k best rows of each query; ties go to the lower id."""
    with jax.set_mesh(self._mesh):  # The caller may have set another mesh.
      return self._search(queries, k)

  def _search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    queries = base.check_queries(queries, self.dimension, k)
    if not len(queries) or not self.num_vectors:
      return base.nothing(len(queries), k)
    wanted = min(k, self.num_vectors)
    fetch = num_fetched(wanted, self.num_vectors)
    found = self._candidates(self._of_all(queries), fetch)
    if self._is_shared:  # Each process goes on with its own.
      own = jax.process_index() * len(queries) + np.arange(len(queries))
      found = tuple(x[own] for x in found)
    ids, rough, rest = found
    norms = np.einsum('qd,qd->q', queries, queries, dtype=np.float64)
    error = self._rounding(norms)
    # A row that scores less than the k-th by more than both errors is out.
    least = np.partition(rough, -wanted, axis=1)[:, -wanted] - 2 * error
    ids = np.where(rough >= least[:, None], ids, -1)
    ids, scores = self.best_of(queries, ids, wanted)
    if fetch < self.num_vectors:
      floor = scores[:, -1]
      if self.metric == 'squared_l2':
        floor = floor + norms
      unsure = np.flatnonzero(floor <= rest + error)
      threshold = floor[unsure] - 3 * error[unsure]
      new = self._search_unsure(queries[unsure], threshold, wanted)
      ids[unsure], scores[unsure] = new
    return base.pad(ids, scores, k)

  def score(self, queries: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return exact float64 scores [b, c] of rows [b, c]; -inf for id -1."""
    queries = np.asarray(queries, np.float32)
    flat = np.asarray(ids, np.int64).reshape(-1)
    owners = np.repeat(np.arange(len(queries)), np.shape(ids)[1])
    scores = np.full(flat.shape, -np.inf)
    (real,) = np.nonzero(flat >= 0)
    if type(self._vectors) is not np.ndarray:  # rows on disk are read in order
      real = real[np.argsort(flat[real], kind='stable')]
    for low in range(0, len(real), _PAIRS):
      pairs = real[low : low + _PAIRS]
      left = self._rows(flat[pairs])
      right = queries[owners[pairs]]
      if self.metric == 'squared_l2':
        left = right = left.astype(np.float64) - right
      # A matrix product could give equal rows different last bits.
      found = np.einsum('pd,pd->p', left, right, dtype=np.float64)
      scores[pairs] = -found if self.metric == 'squared_l2' else found
    return scores.reshape(np.shape(ids))

  def _rows(self, ids: np.ndarray) -> np.ndarray:
    """Return rows [n] in float32; those on disk are read once."""
    if type(self._vectors) is np.ndarray:
      return np.asarray(self._vectors[ids], np.float32)
    unique, at = np.unique(ids, return_inverse=True)
    return np.asarray(self._vectors[unique], np.float32)[at]

  def best_of(
    self, queries: np.ndarray, ids: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return the best k of candidates [q, c] in float64; ties by the lower id."""
    scores = self.score(queries, ids)
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    return (
      np.take_along_axis(ids, order, 1),
      np.take_along_axis(scores, order, 1),
    )

  def _rounding(self, query_norms):
    """Bound the float32 error of scores [q] by the squared norms [q]."""
    largest = 1.01 * self._largest_norm  # The norm is rounded, too.
    scale = np.sqrt(query_norms * largest)
    if self.metric == 'squared_l2':
      scale = 2 * scale + largest
      if self._brute_force:  # Its distances may be rounded as well.
        scale += query_norms
    return (self.dimension + 8) * _UNIT_ROUNDOFF * scale

  @functools.cached_property
  def _brute_force(self) -> scann.BruteForce | None:
    """ScaNN's scores of a copy of the rows, on one CPU the fastest."""
    device = self._mesh.devices.flat[0]
    if (
      self._mesh.size > 1
      or device.platform != 'cpu'
      or self._block_rows
      or self._vectors.dtype != np.float32
      or self.num_vectors < scann.MIN_ROWS
      or not self._resident
      or not scann.available()
    ):
      return None
    rows = np.ascontiguousarray(self._vectors[:])
    norms = np.einsum('nd,nd->n', rows, rows)
    self._largest_norm = float(norms.max())
    return scann.BruteForce(rows, self.metric)

  def _candidates(self, queries, fetch, whole=False):
    """Return the best float32 rows, and what the others score at most.

    Returns:
      ids [q, fetch], scores [q, fetch] without the query's own norm, rest [q].
    """
    if self._brute_force and not whole:
      ids, scores = self._brute_force(queries, fetch)
      if self.metric == 'squared_l2':
        squares = np.einsum('qd,qd->q', queries, queries, dtype=np.float64)
        scores = scores + squares[:, None]
      return ids, scores, scores[:, -1]
    batches = [
      queries[low : low + _MAX_BATCH]
      for low in range(0, len(queries), _MAX_BATCH)
    ]
    placed, best = zip(
      *(block_search.place_queries(b, self._mesh, fetch) for b in batches),
      strict=True,
    )
    largest = []
    for block in self._blocks():
      if not self._resident:  # Read one block while searching another.
        jax.block_until_ready(best)
      largest.append(block.largest)
      best = [
        block_search.search_block(
          batch,
          block,
          so_far,
          mesh=self._mesh,
          metric=self.metric,
          whole=whole,
        )
        for batch, so_far in zip(placed, best, strict=True)
      ]
    self._largest_norm = float(max(jax.device_get(largest)))
    found = [
      [x[: len(batch)] for x in jax.device_get(each)]
      for batch, each in zip(batches, best, strict=True)
    ]
    scores, blocks, rows, rest = map(np.concatenate, zip(*found, strict=True))
    ids = blocks.astype(np.int64) * self._rows_per_block + rows
    return np.where(np.isneginf(scores), -1, ids), scores, rest

  def _search_unsure(self, queries, threshold, k):
    """Search every row that may score `threshold` [q] float64 or better."""
    counts = self._of_all(np.array([len(queries)], np.int32))
    if not counts.max():
      return np.zeros((0, k), np.int64), np.zeros((0, k))
    if not self._is_shared:
      return self._search_wider(queries, threshold, k)
    # All processes search the queries of all.
    missing = counts.max() - len(queries)
    queries = self._of_all(np.pad(queries, ((0, missing), (0, 0))))
    threshold = self._of_all(np.pad(threshold, (0, missing)).astype(np.float32))
    real = (np.arange(counts.max()) < counts[:, None]).reshape(-1)
    found = self._search_wider(queries[real], threshold[real], k)
    low = counts[: jax.process_index()].sum()
    return tuple(x[low : low + counts[jax.process_index()]] for x in found)

  def _search_wider(self, queries, threshold, k):
    threshold = np.nextafter(threshold.astype(np.float32), -np.inf)
    counts = np.zeros(len(queries), np.int64)
    for low in range(0, len(queries), _MAX_BATCH):
      rows = slice(low, low + _MAX_BATCH)
      counts[rows] = self._count(queries[rows], threshold[rows])
    ids = np.zeros((len(queries), k), np.int64)
    scores = np.zeros((len(queries), k))
    order = np.argsort(counts)
    while len(order):
      # Queries with the most rows come last, few at a time.
      widths = np.maximum.accumulate(counts[order])
      fits = widths * (1 + np.arange(len(order))) <= _MAX_CANDIDATES
      take = max(1, int(fits.sum()))
      rows, order = order[:take], order[take:]
      fetch = 1 << int(max(widths[take - 1], k) - 1).bit_length()
      fetch = min(self.num_vectors, fetch)
      found, *_ = self._candidates(queries[rows], fetch, whole=True)
      ids[rows], scores[rows] = self.best_of(queries[rows], found, k)
    return ids, scores

  def _count(self, queries, threshold):
    placed, _ = block_search.place_queries(queries, self._mesh, 1)
    padded = np.full(len(placed), np.inf, np.float32)
    padded[: len(queries)] = threshold
    padded = block_search.everywhere(padded, self._mesh)
    counts = 0
    for block in self._blocks():
      counts += block_search.count_block(
        placed, block, padded, mesh=self._mesh, metric=self.metric
      )
    return np.asarray(counts, np.int64)[: len(queries)]

  def save(self, path: str | os.PathLike) -> None:
    """Write a copy of the vectors, or a reference to their published store."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    fields = {
      'name': self.name,
      'metric': self.metric,
      **saved_vectors.save(path, self._vectors),
    }
    (path / 'searcher.json').write_text(json.dumps(fields) + '\n')

  @property
  def num_bytes(self) -> int:
    """Size of the vectors on disk."""
    return saved_vectors.num_bytes(self._vectors)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'ExactSearcher':
    """Load a saved searcher with memory-mapped vectors.

    Raises:
      ValueError: when the vectors are missing, damaged or replaced.
    """
    path = pathlib.Path(path)
    fields = base.read_fields(path)
    vectors = saved_vectors.load(path, fields)
    return cls(vectors, fields['metric'], check=False)


def num_fetched(k: int, num_vectors: int) -> int:
  """Return the number of candidates for the k best rows.

  Rounding up keeps the number of compiled programs small. XLA selects up to 16 of
  a row on a GPU without a sort.
  """
  wanted = 16 if k <= 8 else -(-(k + _MARGIN) // 32) * 32
  return min(num_vectors, wanted)


def _free_bytes(devices) -> int:
  """Return the device memory that a database may take."""
  free = 0
  for device in devices:
    stats = device.memory_stats() or {}
    if 'bytes_limit' not in stats:
      return 2 << 30
    free += stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  return free * 2 // 5
