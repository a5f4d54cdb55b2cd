# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The registry of retrievers: `names` says what each finds."""

from collections.abc import Callable
import dataclasses

from retrieval.index import text_index
from retrieval.search import (
  fuse,
  late_interaction,
  lda,
  names,
  rerank,
  retriever as retriever_lib,
)
from retrieval.store import shards
from retrieval.text import passages as passages_lib

_ORDERED = 100  # candidates of edit distance and oracle


@dataclasses.dataclass(frozen=True)
class Retrievers:
  """The parts from which the retrievers of some passages are made."""

  indices: text_index.TextIndices
  dense: Callable[[], retriever_lib.Retriever]
  words_weight: float  # of bm25 in 'weighted'; the rest to 1 is that of dense
  seed: tuple[int, ...] = ()  # of 'random'
  progress: shards.Progress | None = None  # of indices that are missing

  @property
  def passages(self) -> passages_lib.Passages:
    """The passages that are found."""
    return self.indices.passages

  def make(self, name: str) -> retriever_lib.Retriever:
    """Return the retriever of one of `names.NAMES`.

    Raises:
      FileNotFoundError: when an index of vectors has not been made.
      ValueError: for an unknown name, or parts that do not belong together.
    """
    if name not in names.NAMES:
      raise ValueError(f'retriever {name!r}: expected one of {names.NAMES}.')
    return _MAKERS[name](self)

  def words(self, kind: str) -> retriever_lib.Retriever:
    """Return BM25 or TF-IDF."""
    index = self.indices.words(kind, progress=self.progress)
    return retriever_lib.IndexRetriever(
      self.passages, index, f'{kind} {index.fingerprint}'
    )

  def topics(self) -> retriever_lib.Retriever:
    """Return the search by topics, which are vectors."""
    model, vectors = self.indices.topics(self.progress)
    search = lda.TopicSearch(vectors.array('vectors'))
    return retriever_lib.Dense(
      self.passages, search, vectors.fingerprint, embedder=lambda: model
    )

  def colbert(self) -> retriever_lib.Retriever:
    """Return late interaction; an exact search looks at all passages."""
    index = self.indices.tokens(progress=self.progress)
    return retriever_lib.IndexRetriever(
      self.passages,
      index,
      index.fingerprint,
      lambda: late_interaction.Unpruned(index),
    )

  def fused(self, *weights: float) -> retriever_lib.Retriever:
    """Return the fusion of dense and bm25, by ranks without weights."""
    parts = self.make('dense'), self.make('bm25')
    return fuse.Fused(*parts, weights=weights or None)

  def ordered(
    self, inner: str, reranker: Callable[..., rerank.Reranker]
  ) -> retriever_lib.Retriever:
    """Return a retriever whose candidates are ordered by their tokens."""
    found = reranker(self.passages)
    return rerank.Reranked(self.make(inner), found, _ORDERED)


_MAKERS: dict[str, Callable[[Retrievers], retriever_lib.Retriever]] = {
  'dense': lambda x: x.dense(),
  'bm25': lambda x: x.words('bm25'),
  'tfidf': lambda x: x.words('tfidf'),
  'hybrid': lambda x: x.fused(),
  'weighted': lambda x: x.fused(1 - x.words_weight, x.words_weight),
  'lda': lambda x: x.topics(),
  'colbert': lambda x: x.colbert(),
  'edit_distance': lambda x: x.ordered('bm25', rerank.EditDistance),
  'random': lambda x: retriever_lib.Random(x.passages, *x.seed),
  'oracle': lambda x: x.ordered('hybrid', rerank.Oracle),
}
