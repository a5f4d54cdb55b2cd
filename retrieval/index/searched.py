# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of sources of neighbors that ask a searcher; see `sources`."""

import abc
from collections.abc import Callable
import functools
import os

from absl import logging
import numpy as np

from retrieval.index import neighbors as neighbors_lib
from retrieval.text import chunks as chunks_lib


class Searched(abc.ABC):
  """A source that asks a searcher, whose rows are the datastore's chunks."""

  def __init__(
    self,
    datastore: chunks_lib.ChunkStore,
    searcher: neighbors_lib.Finder,
    exact: Callable[[], neighbors_lib.Finder] | None = None,
  ):
    self._datastore, self._searcher = datastore, searcher
    self._exact = exact or (lambda: searcher)
    self._by_k = functools.cache(self._neighbor_search)

  @property
  def query_batch(self) -> int:
    """Chunks of a search: more where a searcher opens its shards for each."""
    default = neighbors_lib.QUERY_BATCH
    return getattr(self._searcher, 'query_batch', default)

  def _neighbor_search(self, k: int) -> neighbors_lib.NeighborSearch:
    return neighbors_lib.NeighborSearch(
      self._searcher, self._exact(), self._datastore.id_hash, k
    )

  def _check_rows(self, num_rows: int, path: str | os.PathLike) -> None:
    if num_rows != self._datastore.num_chunks:
      raise ValueError(
        f'{path}: holds {num_rows} rows, the datastore {self._datastore.path} '
        f'{self._datastore.num_chunks} chunks; they must be the same.'
      )

  @abc.abstractmethod
  def _asked(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice
  ) -> np.ndarray:
    """Return the queries of chunks, in the form that the searcher takes."""

  def of_chunks(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice, k: int
  ) -> neighbors_lib.Found:
    """See `neighbors.Source`."""
    search = self._by_k(k)
    before = search.num_exact
    found = search.search(
      self._asked(queries, shard, rows),
      np.asarray(queries.store.shard(shard, 'id_hash')[rows]),
    )
    if repeated := search.num_exact - before:
      logging.log_every_n_seconds(
        logging.INFO,
        'An exact search repeats %d of %d queries.',
        60,
        repeated,
        len(found[0]),
      )
    return found
