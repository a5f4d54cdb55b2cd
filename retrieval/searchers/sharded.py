# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of a database in shards of consecutive rows, each with an index.

Every shard names its best rows, scored in float64 from the vectors on disk, and the
best of all shards are the result, ties by the lower id. So exact shards find what one exact
index finds. Only some shards are open at a time, and memory holds no more.

b queries, k best rows.
"""

from collections.abc import Iterator
import dataclasses
import os
import pathlib
import threading
from typing import Any

import numpy as np

from retrieval.searchers import (
  base,
  exact,
  saved_vectors,
  scann,
  subset as subset_lib,
  usearch,
)
from retrieval.store import sharded_array

_APPROXIMATE = {
  'scann': scann.ScannSearcher,
  'usearch': usearch.UsearchSearcher,
}


def shard_name(number: int) -> str:
  """Name of a shard's folder."""
  return f'shard-{number:06d}'


def bounds(num_rows: int, num_shards: int, number: int) -> range:
  """Return the rows of a shard."""
  low, high = (i * num_rows // num_shards for i in (number, number + 1))
  return range(low, high)


@dataclasses.dataclass(frozen=True)
class Shard:
  """An open shard."""

  searcher: Any  # of its rows, counted from 0
  exact: exact.ExactSearcher  # of the same rows on disk
  first: int  # id of its first row

  def search(self, queries: np.ndarray, k: int) -> base.Hits:
    """Return ids [b, k] of the database and scores [b, k] float64."""
    fetch, settings = k, getattr(self.searcher, 'settings', {})
    if settings.get('rescore') == 'none':  # the scores are rough
      fetch = max(k, settings['num_to_rescore'])
    fetch = min(fetch, self.searcher.num_vectors)
    ids, _ = self.searcher.search(queries, fetch)
    ids, scores = self.exact.best_of(queries, ids, k)
    return np.where(ids < 0, -1, ids + self.first), scores


class ShardedSearcher:
  """A saved database in shards."""

  name = 'sharded'
  query_batch = 8192  # queries that repay the opening of shards

  def __init__(
    self, path: str | os.PathLike, shards_in_memory: int | None = None
  ):
    """Open a saved searcher; its shards open when they are first asked.

    Args:
      shards_in_memory: shards that stay open, 0 for all; None is as saved.

    Raises:
      ValueError: when it is damaged, or its vectors are not there.
    """
    self.path = pathlib.Path(path)
    fields = self._fields = base.read_fields(self.path)
    self.metric = fields['metric']
    self.unit = base.UNITS[self.metric]
    self.num_vectors, self.dimension = fields['shape']
    self.num_shards = fields['shards']
    if shards_in_memory is None:
      shards_in_memory = fields.get('shards_in_memory', 1)
    self.shards_in_memory = shards_in_memory
    self._vectors = saved_vectors.load(self.path, self._fields)
    self._open: dict[int, Shard] = {}
    self._lock = threading.Lock()

  @property
  def is_exact(self) -> bool:
    """Whether the answers equal exact search."""
    return self._fields['kind'] == 'exact'

  @property
  def holds_all(self) -> bool:
    """Whether all shards stay open."""
    return not 0 < self.shards_in_memory < self.num_shards

  def open_shard(self, number: int) -> Shard:
    """Open a shard.

    Raises:
      ValueError: when it is damaged.
    """
    folder = self.path / shard_name(number)
    rows = bounds(self.num_vectors, self.num_shards, number)
    # The maps of these vectors are closed with the shard.
    vectors = saved_vectors.reopened(self._vectors)
    oracle = exact.ExactSearcher(
      sharded_array.SelectedRows(vectors, rows),
      self.metric,
      resident_bytes=None if self.holds_all else 0,
      check=False,
    )
    kind = base.read_fields(folder)['name']
    if kind == oracle.name:
      return Shard(oracle, oracle, rows.start)
    return Shard(_APPROXIMATE[kind].load(folder), oracle, rows.start)

  def _shard(self, number: int) -> Shard:
    with self._lock:
      if number not in self._open:
        if 0 < self.shards_in_memory <= len(self._open):
          self._open.popitem()  # the others serve the next call
        self._open[number] = self.open_shard(number)
      return self._open[number]

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> base.Hits:
    """Find the k best rows of each query."""
    queries = base.check_queries(queries, self.dimension, k)
    if subset is not None:
      subset.check(self.num_vectors)
      return subset_lib.over_fetch(self.search, queries, k, subset)
    count = min(k, self.num_vectors)
    best = base.nothing(len(queries), count)
    for hits in self._answers(queries, count) if count else ():
      pairs = zip(best, hits, strict=True)
      best = base.best(*(np.concatenate(x, axis=1) for x in pairs), count)
    return base.pad(*best, k)

  def _answers(self, queries, k: int) -> Iterator[base.Hits]:
    """Yield the hits of each shard; open shards come first."""
    for i in sorted(range(self.num_shards), key=lambda x: x not in self._open):
      yield self._shard(i).search(queries, k)
