# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Several indices of texts as one: `retrieval.open_index` of several folders."""

from collections.abc import Sequence
import functools

import numpy as np

from retrieval import searchers
from retrieval.index import text_index
from retrieval.nn import embedders as embedders_lib
from retrieval.search import fuse, retriever as retriever_lib
from retrieval.searchers import joined
from retrieval.store import manifests
from retrieval.text import joined as joined_lib


class JoinedIndex(text_index.TextIndex):
  """Several indices as one; ids run through all, in turn.

  Attributes:
    parts: the indices.
  """

  def __init__(
    self, parts: Sequence[text_index.TextIndex], names: Sequence[str]
  ):
    """Take the indices and names of their folders."""
    self.parts, self._names = parts, names
    alone = [x for x in parts if x.chunks is None]
    self.index = (alone or parts)[0].index
    chunks = [] if alone else [x.chunks for x in parts]
    self.chunks = joined_lib.JoinedChunks(chunks, names) if chunks else None
    self._sizes = [*map(len, parts)]

  def __len__(self) -> int:
    return sum(self._sizes)

  @functools.cached_property
  def _compare(self) -> bool:
    """Whether one embedder and one metric made all scores."""
    spaces = {(x.searcher.metric, x.searcher.dimension) for x in self.parts}
    embedders = {x.made_with for x in self.parts} - {''}
    return len(spaces) == 1 and len(embedders) <= 1

  @functools.cached_property
  def searcher(self) -> searchers.Searcher:
    """The searcher over the vectors; ValueError where their scores do not compare."""
    if not self._compare:
      raise ValueError(
        f'queries: vectors for {self._names}, whose embedders or metrics differ; '
        'expected texts.'
      )
    return joined.JoinedSearcher([x.searcher for x in self.parts], self._sizes)

  @property
  def embedder(self) -> embedders_lib.Embedder:
    """See `TextIndex`; it is that of all parts."""
    unknown = [x for x in self.parts if not x.made_with]
    return (unknown or self.parts)[0].embedder

  @functools.cached_property
  def retriever(self) -> retriever_lib.Retriever:
    """By scores where they compare, else by the reciprocals of ranks."""
    parts = [x.retriever for x in self.parts]
    prints = [x.fingerprint for x in parts]
    if not self._compare:
      spans = joined.spans(self._sizes)
      return fuse.Fused(*map(retriever_lib.Part, parts, spans))
    exact = [x.exact for x in parts]
    return retriever_lib.Dense(
      self.chunks,
      self.searcher,
      manifests.fingerprint(prints),
      lambda: joined.JoinedSearcher([x() for x in exact], self._sizes),
      embedder=lambda: self.embedder,
    )

  def _places(self, ids: np.ndarray) -> list[list[str]]:
    return [joined_lib.places(self._names, self._sizes, row) for row in ids]
