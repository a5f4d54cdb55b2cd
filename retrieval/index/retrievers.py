# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The registry of retrievers; `names` describes each."""

from collections.abc import Callable
import dataclasses

from retrieval.index import text_index
from retrieval.search import fuse, names, rerank, retriever as retriever_lib
from retrieval.store import shards

_ORDERED = 100  # candidates of oracle


@dataclasses.dataclass(frozen=True)
class Retrievers:
  """The parts from which the retrievers of some passages are made."""

  indices: text_index.TextIndices
  dense: Callable[[], retriever_lib.Retriever]
  words_weight: float  # of bm25 in 'weighted'; the rest to 1 is that of dense
  seed: tuple[int, ...] = ()  # of 'random'
  progress: shards.Progress | None = None  # of indices that are missing

  def make(self, name: str) -> retriever_lib.Retriever:
    """Return the retriever of one of `names.NAMES`.

    Raises:
      FileNotFoundError: when an index of vectors has not been made.
      ValueError: for an unknown name, or parts that do not belong together.
    """
    passages = self.indices.passages
    match name:
      case 'dense':
        return self.dense()
      case 'bm25' | 'tfidf':
        index = self.indices.words(name, progress=self.progress)
        fingerprint = f'{name} {index.fingerprint}'
        return retriever_lib.IndexRetriever(passages, index, fingerprint)
      case 'hybrid':  # by ranks
        return fuse.Fused(self.make('dense'), self.make('bm25'))
      case 'weighted':
        weights = 1 - self.words_weight, self.words_weight
        parts = self.make('dense'), self.make('bm25')
        return fuse.Fused(*parts, weights=weights)
      case 'colbert':
        index = self.indices.tokens(progress=self.progress)
        return retriever_lib.IndexRetriever(
          passages, index, index.fingerprint, index.unpruned
        )
      case 'random':
        return retriever_lib.Random(passages, *self.seed)
      case 'oracle':
        ordered = rerank.Oracle(passages)
        return rerank.Reranked(self.make('hybrid'), ordered, _ORDERED)
    raise ValueError(f'retriever {name!r}: expected one of {names.NAMES}.')
