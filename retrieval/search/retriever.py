# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Retrievers over one index; `fuse` and `rerank` wrap retrievers."""

from collections.abc import Callable, Sequence
import copy
import functools
from typing import Any, Protocol, runtime_checkable

import numpy as np

from retrieval.search import exclude, queries as queries_lib
from retrieval.searchers import base, subset as subset_lib
from retrieval.store import array_store, manifests
from retrieval.text import chunks as chunks_lib, passages as passages_lib

_FILTERS = 8  # and numbers k, whose other documents are counted
Queries = queries_lib.Queries


@runtime_checkable
class Retriever(Protocol):
  """A way to find passages."""

  fingerprint: str  # hash of everything that decides the results
  unit: str  # of the scores, such as 'BM25', for people to read

  def search(self, queries: Queries | Sequence[str], k: int) -> base.Hits:
    """Find the k best passages of each query; a blank text finds none.

    Returns:
      ids [b, k] int64 and scores [b, k] float32, best first, -1 and -inf for none.

    Raises:
      ValueError: for anything else than texts, or k < 1.
    """


class IndexRetriever:
  """A retriever of one index, which takes texts; its rows are the passages."""

  def __init__(
    self,
    passages: passages_lib.Passages | None,
    index: exclude.Index,
    fingerprint: str,
    exact: Callable[[], exclude.Index] | None = None,
  ):
    """Take the index and, unless it is exact, a function that opens an exact one.

    Without passages no document can be excluded.
    """
    self.passages, self.index, self.fingerprint = passages, index, fingerprint
    self.unit = index.unit
    exact = self.exact = functools.cache(exact or (lambda: index))
    self._others = functools.lru_cache(_FILTERS)(
      lambda k, subset: exclude.OtherDocuments(
        index, exact, passages.id_hash, k, subset=subset
      )
    )

  @property
  def query_batch(self) -> int | None:
    """Queries of a search, where the index opens its shards for each; else None."""
    return getattr(self.index, 'query_batch', None)

  def index_for(self, subset: subset_lib.Subset | None) -> exclude.Index:
    """Return the index that searches a subset of the passages."""
    del subset
    return self.index

  def asked(self, queries: Queries) -> np.ndarray:
    """Return queries in the form that the index takes."""
    return np.asarray(queries.texts, object)

  def search(self, queries: Queries | Sequence[str], k: int) -> base.Hits:
    """See `Retriever`."""
    queries = queries_lib.checked(queries, k)
    asked, subset = self.asked(queries), queries.subset
    if queries.excluded is None:
      ids, scores = self.index_for(subset).search(asked, k, subset)
    else:
      ids, scores = self._others(k, subset).search(asked, queries.excluded)
    asks = queries.asks[:, None]
    return np.where(asks, ids, -1), np.where(asks, scores, -np.inf)


class Dense(IndexRetriever):
  """Nearest vectors of an embedder."""

  def __init__(
    self,
    passages: passages_lib.Passages | None,
    searcher: exclude.Index,
    fingerprint: str = '',
    exact: Callable[[], exclude.Index] | None = None,
    *,
    embedder: Callable[[], Any] | None = None,
    vectors: Callable[[chunks_lib.ChunkStore], array_store.Store] | None = None,
  ):
    """Take a searcher over the vectors of passages.

    Args:
      embedder: loads the `embedders.Embedder` of new texts; None needs queries with
        vectors.
      vectors: opens the vectors of chunks that are queries.
    """
    super().__init__(passages, searcher, fingerprint, exact)
    self._embedder = embedder and functools.cache(embedder)
    self._vectors = vectors and functools.cache(vectors)

  def index_for(self, subset: subset_lib.Subset | None) -> exclude.Index:
    """See `IndexRetriever`; few vectors are searched exactly."""
    return self.exact() if subset is not None and subset.are_few else self.index

  def asked(self, queries: Queries) -> np.ndarray:
    """See `IndexRetriever`."""
    if queries.vectors is not None:
      return queries.vectors
    if self._vectors and isinstance(queries, queries_lib.ChunkQueries):
      stored = self._vectors(queries.chunks).array('vectors')
      return np.asarray(stored[queries.ids], np.float32)
    if not self._embedder:
      raise ValueError(
        'Texts without an embedder: expected queries with vectors.'
      )
    embedder = self._embedder()
    embed = (
      embedder.embed_queries if queries.questions else embedder.embed_texts
    )
    return embed(queries.texts)


class Among:
  """A retriever of some of the passages."""

  def __init__(
    self, inner: Retriever, subset: subset_lib.Subset, fingerprint: str = ''
  ):
    """Take a retriever; '' is a hash of its fingerprint and the subset's."""
    self._inner, self._subset, self.unit = inner, subset, inner.unit
    self.query_batch = getattr(inner, 'query_batch', None)
    self.fingerprint = fingerprint or manifests.fingerprint(
      [inner.fingerprint, subset.fingerprint]
    )

  def search(self, queries: Queries | Sequence[str], k: int) -> base.Hits:
    """See `Retriever`."""
    queries = queries_lib.checked(queries, k)
    return self._inner.search(queries.among(self._subset), k)


class Part:
  """A retriever of some consecutive passages, which finds them by the ids of all."""

  def __init__(self, inner: Retriever, span: range):
    self._inner, self._span, self.unit = inner, span, inner.unit
    self.fingerprint = inner.fingerprint

  def search(self, queries: Queries | Sequence[str], k: int) -> base.Hits:
    """See `Retriever`."""
    queries = copy.copy(queries_lib.checked(queries, k))
    queries.subset = queries.subset and queries.subset.within(self._span)
    ids, scores = self._inner.search(queries, k)
    return np.where(ids < 0, -1, ids + self._span.start), scores


class Random(IndexRetriever):
  """Random passages, the same at each call; a baseline."""

  def __init__(self, passages: passages_lib.Passages, *seed: int):
    super().__init__(passages, _Draws(len(passages), seed), f'random {seed}')

  def asked(self, queries: Queries) -> np.ndarray:
    """See `IndexRetriever`."""
    return queries.seeds


class _Draws:
  """An index that draws rows; its queries are seeds."""

  unit = 'random'

  def __init__(self, num_rows: int, seed: tuple[int, ...]):
    self._num_rows, self._seed = num_rows, seed

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> base.Hits:
    if subset is not None:
      return subset_lib.over_fetch(self.search, queries, k, subset)
    ids, scores = base.nothing(len(queries), k)
    count = min(k, self._num_rows)
    for row, query in enumerate(queries.tolist()):
      rng = np.random.default_rng((*self._seed, query))
      ids[row, :count] = rng.choice(self._num_rows, count, replace=False)
    scores[:, :count] = 0
    return ids, scores
