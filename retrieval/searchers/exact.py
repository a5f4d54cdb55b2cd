# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search, block by block, on all devices.

Float32 products on the devices choose candidates, whose scores are then
computed in float64. A bound on float32 rounding tells whether another row could
belong to the best; if so, a second pass counts and fetches such rows. The
result is that of float64, with ties by the lower id. A database beyond the
device memory streams from its memory map, once for each call.
"""

from collections.abc import Iterator
import functools
import json
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from retrieval.searchers import base, block_search, saved_vectors

_MARGIN = 16  # candidates beyond k
_MAX_BATCH = 1024
_MAX_CANDIDATES = 1 << 22  # of one pass that fetches unusually many
_PAIRS = 8192  # of query and row scored in float64 at a time
_UNIT_ROUNDOFF = 2.0**-24


class ExactSearcher:
  """Exact search over an array, a memory map or a sharded array."""

  name = 'exact'

  def __init__(
    self,
    vectors,
    metric: str = 'dot_product',
    *,
    block_rows: int = 65_536,
    resident_bytes: int | None = None,
    devices: list[jax.Device] | None = None,
    check: bool = True,
  ):
    """Check the database; copy nothing yet.

    Args:
      vectors: [n, d] floats, read slice by slice. float16 and bfloat16 rows
        take half the memory of float32 rows on the devices.
      metric: 'dot_product' or 'squared_l2'.
      block_rows: rows of one matrix product over all devices.
      resident_bytes: size of the largest database that stays on the devices; a
        larger one streams. None is two fifths of the devices' free memory, or 2
        GiB where it is unknown.
      devices: devices that search; None is all of this process.
      check: whether to read the database once for values that are not finite.

    Raises:
      ValueError: for a bad metric, shape or value.
    """
    base.check_metric(metric)
    if block_rows < 1:
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

  @functools.cached_property
  def _rows_per_block(self) -> int:
    """Rows of a block: a multiple of devices x group, not above the database."""
    unit = self._mesh.size * block_search.GROUP
    wanted = min(self._block_rows, max(self.num_vectors, 1))
    return -(-wanted // unit) * unit

  @functools.cached_property
  def _resident(self) -> bool:
    limit = self._resident_bytes
    if limit is None:
      limit = _free_bytes(self._mesh.devices.flat)
    size = block_search.device_dtype(self._vectors.dtype).itemsize
    return size * self.num_vectors * self.dimension <= limit

  @functools.cached_property
  def _blocks_on_device(self) -> list[block_search.Block]:
    return list(self._read_blocks())

  def _read_blocks(self) -> Iterator[block_search.Block]:
    size = self._rows_per_block
    for number, low in enumerate(range(0, self.num_vectors, size)):
      rows = np.asarray(self._vectors[low : low + size])
      yield block_search.place_block(rows, size, number, self._mesh)

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
    # Rounding up keeps the number of compiled programs small.
    fetch = min(self.num_vectors, -(-(wanted + _MARGIN) // 32) * 32)
    ids, lowest = self._candidates(queries, fetch)
    ids, scores = self.best_of(queries, ids, wanted)
    if fetch < self.num_vectors:
      norms = np.einsum('qd,qd->q', queries, queries, dtype=np.float64)
      shift = norms if self.metric == 'squared_l2' else 0.0
      floor, error = scores[:, -1] + shift, self._rounding(norms)
      unsure = np.flatnonzero(floor <= lowest + error)
      if len(unsure):
        threshold = floor[unsure] - 3 * error[unsure]
        ids[unsure], scores[unsure] = self._search_wider(
          queries[unsure], threshold, wanted
        )
    return base.pad(ids, scores, k)

  def score(self, queries: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return exact float64 scores [b, c] of rows [b, c]; -inf for id -1."""
    queries = np.asarray(queries, np.float32).astype(np.float64)
    flat = np.asarray(ids, np.int64).reshape(-1)
    owners = np.repeat(np.arange(len(queries)), np.shape(ids)[1])
    scores = np.full(flat.shape, -np.inf)
    (real,) = np.nonzero(flat >= 0)
    for low in range(0, len(real), _PAIRS):
      pairs = real[low : low + _PAIRS]
      unique, at = np.unique(flat[pairs], return_inverse=True)
      rows = np.asarray(self._vectors[unique], np.float32)
      rows = rows.astype(np.float64)[at]
      wide = queries[owners[pairs]]
      # A matrix product could give equal rows different last bits.
      if self.metric == 'squared_l2':
        rows -= wide
        scores[pairs] = -np.einsum('pd,pd->p', rows, rows)
      else:
        scores[pairs] = np.einsum('pd,pd->p', rows, wide)
    return scores.reshape(np.shape(ids))

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
    return (self.dimension + 8) * _UNIT_ROUNDOFF * scale

  def _candidates(self, queries, fetch):
    """Return the ids [q, fetch] of the best float32 rows, and their least score."""
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
      largest.append(block.norms.max())
      best = [
        block_search.search_block(
          batch, block, so_far, mesh=self._mesh, metric=self.metric
        )
        for batch, so_far in zip(placed, best, strict=True)
      ]
    self._largest_norm = float(max(jax.device_get(largest)))
    ids, lowest = [], []
    for batch, found in zip(batches, jax.device_get(best), strict=True):
      blocks = found.blocks.astype(np.int64)
      numbers = blocks * self._rows_per_block + found.rows
      numbers = np.where(np.isneginf(found.scores), -1, numbers)
      ids.append(numbers[: len(batch)])
      lowest.append(found.scores[: len(batch), -1])
    return np.concatenate(ids), np.concatenate(lowest)

  def _search_wider(self, queries, threshold, k):
    """Search every row that may score `threshold` [q] float64 or better."""
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
      found, _ = self._candidates(queries[rows], fetch)
      ids[rows], scores[rows] = self.best_of(queries[rows], found, k)
    return ids, scores

  def _count(self, queries, threshold):
    placed, _ = block_search.place_queries(queries, self._mesh, 1)
    padded = np.full(len(placed), np.inf, np.float32)
    padded[: len(queries)] = threshold
    counts = jnp.zeros(len(placed), jnp.int32)
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


def _free_bytes(devices) -> int:
  """Return the device memory that a database may take."""
  free = 0
  for device in devices:
    stats = device.memory_stats() or {}
    if 'bytes_limit' not in stats:
      return 2 << 30
    free += stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  return free * 2 // 5
