# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sources of neighbors that fuse the lists of others; see `sources`."""

from collections.abc import Sequence
from typing import Any

from retrieval.index import neighbors as neighbors_lib
from retrieval.search import fusion
from retrieval.store import store
from retrieval.text import chunks as chunks_lib

_CANDIDATES = fusion.CANDIDATES  # of each list

Found = neighbors_lib.Found


class Hybrid:
  """Reciprocal rank fusion: each chunk's sum over lists of 1 / (60 + rank)."""

  def __init__(self, *parts: neighbors_lib.Source):
    """Take the sources whose lists are fused."""
    self._parts = parts

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """See `neighbors.Source`."""
    parts = [part.fields(queries) for part in self._parts]
    return {
      'source': 'hybrid',
      'index': store.fingerprint({'parts': parts, 'constant': fusion.CONSTANT}),
      'candidates': _CANDIDATES,
    }

  def of_chunks(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice, k: int
  ) -> Found:
    """See `neighbors.Source`."""
    n = max(k, _CANDIDATES)
    return self._fuse(
      [part.of_chunks(queries, shard, rows, n) for part in self._parts], k
    )

  def of_texts(self, texts: Sequence[str], k: int) -> Found:
    """See `neighbors.Source`."""
    n = max(k, _CANDIDATES)
    return self._fuse([part.of_texts(texts, n) for part in self._parts], k)

  def _fuse(self, lists: Sequence[Found], k: int) -> Found:
    return fusion.by_ranks([ids for ids, _ in lists], k)


class Weighted(Hybrid):
  """Weighted sums of normalised scores; see `fusion.by_scores`."""

  def __init__(
    self,
    dense: neighbors_lib.Source,
    words: neighbors_lib.Source,
    words_weight: float,
  ):
    """Take the sources and the weight of `words`; that of `dense` is the rest to 1."""
    super().__init__(dense, words)
    self._weights = 1 - words_weight, words_weight

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """See `neighbors.Source`."""
    parts = [part.fields(queries) for part in self._parts]
    made_of = {'parts': parts, 'weights': self._weights}
    return {
      'source': 'weighted',
      'index': store.fingerprint(made_of),
      'candidates': _CANDIDATES,
      'words_weight': self._weights[1],
    }

  def _fuse(self, lists: Sequence[Found], k: int) -> Found:
    return fusion.by_scores(lists, self._weights, k)
