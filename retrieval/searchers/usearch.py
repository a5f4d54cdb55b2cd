# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""USearch: a graph of near vectors (HNSW; Malkov and Yashunin 2016).

It has wheels for macOS, Windows and Python 3.14, where ScaNN has none. It holds every
vector in memory, in float32.
"""

import importlib.util
import os
import pathlib
from typing import Any

import numpy as np

from retrieval.searchers import base, exact, subset as subset_lib

_FILE = 'graph.usearch'
_METRICS = {'dot_product': 'ip', 'squared_l2': 'l2sq'}
_NEIGHBORS = 16  # of a vector in the graph
_EXPANSION = 128  # candidates held while it builds and, at the least, searches


def available() -> bool:
  """Return whether USearch is installed."""
  return importlib.util.find_spec('usearch') is not None


class UsearchSearcher:
  """A graph in memory; two builds of a database differ."""

  name = 'usearch'

  def __init__(self, graph: Any, metric: str, shape: tuple[int, int]):
    self._graph = graph
    self.metric, self.unit = metric, base.UNITS[metric]
    self.num_vectors, self.dimension = shape

  @classmethod
  def build(cls, vectors, metric: str) -> 'UsearchSearcher':
    """Build a graph of vectors [n, d].

    Raises:
      ValueError: for bad vectors or another metric.
      ImportError: where USearch is not installed.
    """
    base.check_metric(metric)
    num_rows, dimension = base.check_vectors(vectors)
    graph = _import().Index(
      ndim=dimension,
      metric=_METRICS[metric],
      dtype='f32',
      connectivity=_NEIGHBORS,
      expansion_add=_EXPANSION,
    )
    graph.add(np.arange(num_rows), np.asarray(vectors, np.float32))
    return cls(graph, metric, (num_rows, dimension))

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> base.Hits:
    """Find the k best rows of each query; exactly where the graph reaches fewer."""
    queries = base.check_queries(queries, self.dimension, k)
    if subset is None:
      rows = np.arange(self.num_vectors)
      ids, scores = self._search_graph(queries, k)
    else:
      subset.check(self.num_vectors)
      rows = subset.rows
      ids, scores = subset_lib.over_fetch(
        self._search_graph, queries, k, subset
      )
    short = np.flatnonzero((ids >= 0).sum(axis=1) < min(k, len(rows)))
    if len(short):
      vectors = np.stack(self._graph.get(rows)).reshape(-1, self.dimension)
      searcher = exact.ExactSearcher(vectors, self.metric)
      columns, scores[short] = searcher.search(queries[short], k)
      ids[short] = np.where(columns >= 0, rows[columns], -1)
    return ids, scores

  def _search_graph(self, queries: np.ndarray, k: int) -> base.Hits:
    """Find the k best rows that the graph reaches."""
    if not len(queries):
      return base.nothing(0, k)
    count = min(k, self.num_vectors)
    self._graph.expansion_search = max(_EXPANSION, 2 * count)
    matches = self._graph.search(queries, count)
    # Of one query, only the rows that were reached; of several, garbage beyond.
    ids = np.atleast_2d(matches.keys).astype(np.int64)
    counts = np.reshape(getattr(matches, 'counts', len(matches)), (-1, 1))
    missing = np.arange(ids.shape[1]) >= counts
    far = np.where(missing, np.inf, np.atleast_2d(matches.distances))
    scores = 1 - far if self.metric == 'dot_product' else -far
    ids = np.where(missing, -1, ids)
    return base.pad(*base.best(ids, scores, count), k)

  def save(self, path: str | os.PathLike) -> None:
    """Write the graph into the folder `path`."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    self._graph.save(str(path / _FILE))
    base.write_fields(
      path,
      name=self.name,
      metric=self.metric,
      shape=[self.num_vectors, self.dimension],
      size=(path / _FILE).stat().st_size,
    )

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'UsearchSearcher':
    """Load a saved searcher; ValueError when its file is damaged."""
    path = pathlib.Path(path)
    fields = base.read_fields(path)
    base.check_files(path, {_FILE: fields['size']})
    graph = _import().Index.restore(str(path / _FILE))
    return cls(graph, fields['metric'], tuple(fields['shape']))


def _import():
  try:
    from usearch import index
  except ImportError as error:
    raise ImportError(
      f'index.searcher=usearch: {error}; pip install realm-retro-jax[usearch], '
      'or searcher exact.'
    ) from None
  return index
