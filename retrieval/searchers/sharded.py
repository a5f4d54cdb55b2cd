# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of a database in shards, each with an index of its own.

Every shard names its best rows. Those are scored again in float64 from the vectors on
disk, and the best of all shards are kept, ties by the lower id. So exact shards find
what one exact index finds. Only some shards are open at a time; what a shard takes is
given back when it is closed.

b queries, k best rows, S shards, D dimension.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import json
import os
import pathlib
import threading
from typing import Any

import numpy as np

from retrieval.searchers import (
  base,
  codes,
  exact,
  partition,
  saved_vectors,
  scann,
)
from retrieval.store import links, selected_rows, sharded_array

CENTROIDS, ROWS = 'centroids.npy', 'rows.npy'
_COPIED = ('shard-*', CENTROIDS, saved_vectors.COPY)
_TO_RESCORE = 100  # candidates of codes, as of ScaNN's
_QUERY_BATCH = 8192  # queries that repay the opening of shards
_LOADED = {'scann': scann.ScannSearcher, 'int8': codes.Int8Searcher}

Found = tuple[np.ndarray, np.ndarray]


def shard_name(number: int) -> str:
  """Name of a shard's folder."""
  return f'shard-{number:06d}'


def bounds(sizes: Sequence[int], number: int) -> range:
  """Return the rows of a shard of consecutive rows."""
  low = int(sum(sizes[:number]))
  return range(low, low + int(sizes[number]))


def merge(best: Found, found: Found, k: int) -> Found:
  """Return the best k of two lists [b, *] in float64, ties by the lower id."""
  ids, scores = (
    np.concatenate(pair, 1) for pair in zip(best, found, strict=True)
  )
  order = np.lexsort((ids, -scores), axis=1)[:, :k]
  return (
    np.take_along_axis(ids, order, 1),
    np.take_along_axis(scores, order, 1),
  )


@dataclasses.dataclass(frozen=True)
class Shard:
  """An open shard."""

  searcher: Any  # of its rows, counted from 0
  exact: exact.ExactSearcher  # of the same rows on disk
  vectors: Any  # all rows on disk
  rows: range | np.ndarray  # [n] ids of the shard's rows, ascending
  is_approximate: bool  # whether its scores are those of codes alone

  def search(self, queries: np.ndarray, k: int, **settings: int) -> Found:
    """Return ids [b, k] of the database and scores [b, k] float64."""
    k = min(k, len(self.rows))
    if self.searcher.name == 'scann':
      ids, scores = self.searcher.search(queries, k, **settings)
    else:
      ids, scores = self.searcher.search(queries, k)
    if not self.is_approximate:
      scores = self.exact.score(queries, ids)
    if isinstance(self.rows, range):
      found = ids + self.rows.start
    else:
      found = self.rows[np.maximum(ids, 0)]
    return np.where(ids < 0, -1, found), np.asarray(scores, np.float64)

  def close(self) -> None:
    """Give back the memory of the vectors."""
    saved_vectors.release(self.vectors)


class ShardedSearcher:
  """A saved database in shards; see the module's first lines.

  Attributes:
    shards_to_search: nearest shards that are asked for a query; 0 is all.
    shards_in_memory: shards that stay open; 0 is all.
  """

  name = 'sharded'

  def __init__(
    self,
    path: str | os.PathLike,
    fields: Mapping[str, Any],
    shards_in_memory: int | None = None,
  ):
    """Take the folder and its searcher.json; `load` reads both."""
    self.path = pathlib.Path(path)
    self._fields = dict(fields)
    self.metric = fields['metric']
    self.num_vectors, self.dimension = fields['shape']
    self.shards_to_search = fields['shards_to_search']
    if shards_in_memory is None:
      shards_in_memory = fields.get('shards_in_memory', 1)
    self.shards_in_memory = shards_in_memory
    self._vectors = saved_vectors.load(self.path, self._fields)
    self._open: dict[int, Shard] = {}
    self._lock = threading.Lock()

  @property
  def query_batch(self) -> int:
    """Queries that jobs should ask at once."""
    return _QUERY_BATCH

  @property
  def num_shards(self) -> int:
    """Number of shards."""
    return len(self._fields['sizes'])

  @property
  def kind(self) -> str:
    """Kind of the shards' searchers: exact, int8 or scann."""
    return self._fields['kind']

  @property
  def is_exact(self) -> bool:
    """Whether the answers are those of exact search."""
    few = 0 < self.shards_to_search < self.num_shards
    return self.kind == 'exact' and not few

  @property
  def holds_all(self) -> bool:
    """Whether all shards stay open."""
    return not 0 < self.shards_in_memory < self.num_shards

  @functools.cached_property
  def settings(self) -> dict[str, int]:
    """Settings of `search` as the index was built, and their upper limits."""
    found = {'shards': self.num_shards}
    found['shards_to_search'] = self.shards_to_search or self.num_shards
    for number in range(self.num_shards):
      fields = base.read_fields(self.path / shard_name(number))
      if 'settings' in fields:
        return found | fields['settings']
    return found

  @functools.cached_property
  def _centroids(self) -> np.ndarray:
    return np.asarray(sharded_array.open_npy(self.path / CENTROIDS))

  @functools.cached_property
  def _rescored_from(self) -> int:
    """Candidates of codes that are scored again; 0 where shards do so."""
    if self.kind == 'int8':
      return _TO_RESCORE
    is_bare = self.settings.get('rescore') == 'none'
    return self.settings['num_to_rescore'] if is_bare else 0

  def open_shard(self, number: int) -> Shard:
    """Open a shard."""
    folder = self.path / shard_name(number)
    fields = base.read_fields(folder)
    if self._fields['by'] == 'centroid':
      rows = np.asarray(sharded_array.open_npy(folder / ROWS))
    else:
      rows = bounds(self._fields['sizes'], number)
    # A shard that is closed gives the memory of the maps back. An exact shard that
    # is closed soon streams instead of copying its rows.
    vectors = self._vectors
    if not self.holds_all:
      vectors = saved_vectors.streamed(vectors)
    oracle = exact.ExactSearcher(
      selected_rows.SelectedRows(vectors, rows),
      self.metric,
      resident_bytes=None if self.holds_all else 0,
      check=False,
    )
    if fields['name'] == 'exact':
      return Shard(oracle, oracle, vectors, rows, False)
    if fields['name'] not in _LOADED:
      raise ValueError(
        f'{folder}: searcher {fields["name"]!r}, expected exact or one of '
        f'{list(_LOADED)}.'
      )
    searcher = _LOADED[fields['name']].load(folder)
    if searcher.num_vectors != len(rows):
      raise ValueError(
        f'{folder}: an index of {searcher.num_vectors} rows, expected '
        f'{len(rows)}; it is damaged.'
      )
    is_approximate = bool(self._rescored_from)
    return Shard(searcher, oracle, vectors, rows, is_approximate)

  def _shard(self, number: int) -> Shard:
    with self._lock:
      if number not in self._open:
        if 0 < self.shards_in_memory <= len(self._open):
          # The others serve the next call.
          self._open.popitem()[1].close()
        self._open[number] = self.open_shard(number)
      return self._open[number]

  def search(
    self,
    queries: np.ndarray,
    k: int,
    *,
    shards_to_search: int = 0,
    **settings: int,
  ) -> Found:
    """Find the k best rows of each query; settings above 0 override the index's.

    Args:
      **settings: as of `ScannSearcher.search`, for shards that are ScaNN's.
    """
    queries = base.check_queries(queries, self.dimension, k)
    wanted = min(k, self.num_vectors)
    if not len(queries) or not wanted:
      return base.nothing(len(queries), k)
    few = shards_to_search or self.shards_to_search or self.num_shards
    ids, scores = self._best(queries, wanted, few, settings)
    short = np.flatnonzero((ids < 0).any(axis=1))
    if len(short) and few < self.num_shards:
      # These shards held too few rows: ask all.
      everywhere = self._best(queries[short], wanted, self.num_shards, settings)
      ids[short], scores[short] = everywhere
    return base.pad(ids, scores, k)

  def _best(self, queries, k, few, settings) -> Found:
    """Return the best k rows [b, k] of the `few` nearest shards in float64."""
    fetch = max(k, min(self.num_vectors, self._fetched(k, settings)))
    ids, scores = base.nothing(len(queries), fetch)
    best = ids, scores.astype(np.float64)
    for own, found in self._answers(self._asks(queries, few), fetch, settings):
      of_queries = tuple(x[own] for x in best)
      for all_of, some in zip(
        best, merge(of_queries, found, fetch), strict=True
      ):
        all_of[own] = some
    if fetch == k:
      return best
    vectors = saved_vectors.streamed(self._vectors)
    whole = exact.ExactSearcher(vectors, self.metric, check=False)
    found = whole.best_of(queries, best[0], k)
    saved_vectors.release(vectors)
    return found

  def _fetched(self, k: int, settings: Mapping[str, int]) -> int:
    """Return the candidates of each shard, and of all, for the k best rows."""
    if not self._rescored_from:
      return k
    return max(settings.get('num_to_rescore') or self._rescored_from, 2 * k)

  def _asks(self, queries, few) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield for each shard its number, the places of its queries, and these.

    Open shards come first.
    """
    every, near = np.arange(len(queries)), None
    if few < self.num_shards:
      near = partition.order(queries, self._centroids, self.metric, few)
    numbers = (i for i in range(self.num_shards) if self._fields['sizes'][i])
    for i in sorted(numbers, key=lambda x: x not in self._open):
      if near is None:
        yield i, every, queries
      elif len(own := np.flatnonzero((near == i).any(axis=1))):
        yield i, own, queries[own]

  def _answers(self, asks, k, settings) -> Iterator[tuple[np.ndarray, Found]]:
    """Yield places of queries, and what a shard finds for them."""
    for number, own, queries in asks:
      yield own, self._shard(number).search(queries, k, **settings)

  @property
  def bytes_in_memory(self) -> float:
    """Bytes that an open shard takes for each of its vectors."""
    if self.kind == 'exact':
      return 4.0 * self.dimension if self.holds_all else 0.0
    settings = self.settings
    if self.kind == 'int8' or 'rescore' not in settings:
      return self.dimension + 4.0
    names = [x.name for x in dataclasses.fields(scann.ScannConfig)]
    config = scann.ScannConfig(**{name: settings[name] for name in names})
    return scann.expected_bytes(1000, self.dimension, config)[1] / 1000

  @property
  def num_bytes(self) -> int:
    """Size on disk, with the vectors."""
    files = (f for f in self.path.rglob('*') if f.is_file())
    size = sum(f.stat().st_size for f in files)
    elsewhere = 'store' in self._fields
    return size + elsewhere * saved_vectors.num_bytes(self._vectors)

  def save(self, path: str | os.PathLike) -> None:
    """Write the files of `load`: links to those of this searcher, or copies."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    for pattern in _COPIED:
      for source in sorted(self.path.glob(pattern)):
        copy = links.folder if source.is_dir() else links.place
        copy(source, path / source.name)
    fields = self._fields | {'shards_in_memory': self.shards_in_memory}
    if 'store' in fields:
      fields |= saved_vectors.save(path, self._vectors)
    (path / 'searcher.json').write_text(json.dumps(fields) + '\n')

  @classmethod
  def load(
    cls, path: str | os.PathLike, shards_in_memory: int | None = None
  ) -> 'ShardedSearcher':
    """Open a saved searcher; its shards open when they are first asked.

    Args:
      shards_in_memory: shards that stay open, 0 for all; None is as saved.

    Raises:
      ValueError: when it is damaged, or its vectors are not there.
    """
    path = pathlib.Path(path)
    return cls(path, base.read_fields(path), shards_in_memory)
