# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways to find the neighbors of a chunk; `Sources.make` names them.

dense          nearest vectors of a frozen embedder (Borgeaud et al. 2021, section 2.3)
bm25           BM25 over the words of chunks (Doostmohammadi et al. 2023)
tfidf          DrQA's TF-IDF over their words and pairs of words (Chen et al. 2017)
hybrid         reciprocal rank fusion of dense and bm25 (Cormack et al. 2009)
weighted       weighted sums of the normalised scores of dense and bm25 (Ma et al. 2021)
lda            most similar topics (Wei and Croft 2006)
colbert        late interaction of the vectors of tokens (Santhanam et al. 2021)
edit_distance  candidates of bm25 by the edit distance of their tokens
oracle         candidates of hybrid by the tokens that they share with the text that
               follows the query: an upper bound of re-ranking, unfit for training
random         random chunks

Chunks of the query's own document are excluded before anything is fused or ordered.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import os
from typing import Any, Literal, get_args
import zlib

import numpy as np

from retrieval import searchers, tokenization
from retrieval.index import (
  fused,
  index as index_lib,
  neighbors as neighbors_lib,
  ordered,
  searched,
  vectors as vectors_lib,
)
from retrieval.search import (
  bm25 as bm25_lib,
  late_interaction,
  lda as lda_lib,
  sparse_index,
  term_counts,
  tfidf as tfidf_lib,
)
from retrieval.searchers import base
from retrieval.store import shards, store
from retrieval.text import chunks as chunks_lib, tokens as tokens_lib

Name = Literal[
  'dense',
  'bm25',
  'tfidf',
  'hybrid',
  'weighted',
  'lda',
  'colbert',
  'edit_distance',
  'oracle',
  'random',
]
NAMES = get_args(Name)
WITH_VECTORS = ('dense', 'hybrid', 'weighted', 'oracle')
WITH_WORDS = (
  'bm25',
  'tfidf',
  'hybrid',
  'weighted',
  'edit_distance',
  'oracle',
)
WORDS = {'bm25': bm25_lib.Bm25, 'tfidf': tfidf_lib.TfIdf}
WORDS_WEIGHT = 0.5  # of `weighted`; training text chose it

Found = neighbors_lib.Found


class Dense(searched.Searched):
  """Nearest vectors of a frozen embedder."""

  def __init__(
    self,
    datastore: chunks_lib.ChunkStore,
    index: index_lib.Index,
    vectors: Callable[[chunks_lib.ChunkStore], store.Store],
    embedder: Callable[[], vectors_lib.TextEmbedder],
  ):
    """Take a published index.

    Args:
      vectors: opens the vectors of a chunk store.
      embedder: loads the embedder of new text.

    Raises:
      ValueError: for an index of other than the datastore's number of chunks.
    """
    self._vectors = functools.cache(vectors)
    self._index, self._embedder = index, functools.cache(embedder)
    super().__init__(
      datastore,
      index.searcher,
      lambda: searchers.exact_of(
        index.searcher, self._vectors(datastore).array('vectors')
      ),
    )
    self._check_rows(index.searcher.num_vectors, index.path)

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """See `neighbors.Source`."""
    for chunks in (queries, self._datastore):
      vectors_lib.check_chunks(self._vectors(chunks), chunks)
    vectors = self._vectors(queries)
    return {'vectors': vectors.fingerprint, 'index': self._index.fingerprint}

  def _asked(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice
  ) -> np.ndarray:
    block = self._vectors(queries).shard(shard, 'vectors')[rows]
    return np.asarray(block, np.float32)

  def of_texts(self, texts: Sequence[str], k: int) -> Found:
    """See `neighbors.Source`."""
    return search_texts(self._embedder(), self._searcher, texts, k)


def search_texts(
  embedder: vectors_lib.TextEmbedder,
  searcher: searchers.Searcher,
  texts: Sequence[str],
  k: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Return ids and scores [b, k] of the rows nearest to each text.

  A blank text says nothing, so it finds nothing: ids -1 and scores -inf.
  """
  ids, scores = searcher.search(embedder.embed_texts(list(texts)), k)
  said = np.array([bool(text.strip()) for text in texts], bool)[:, None]
  return np.where(said, ids, -1), np.where(said, scores, -np.inf)


class _OfTexts(searched.Searched):
  """A source whose index takes the texts of chunks."""

  def __init__(
    self,
    datastore: chunks_lib.ChunkStore,
    searcher: sparse_index.SparseIndex
    | lda_lib.Lda
    | late_interaction.LateInteraction,
    path: str | os.PathLike,
    tokenizer: tokenization.Tokenizer,
    name: str,
    exact: Callable[[], neighbors_lib.Finder] | None = None,
  ):
    """Take the index that was opened at `path`, and the source's name."""
    super().__init__(datastore, searcher, exact)
    self._check_rows(searcher.num_blocks, path)
    self._tokenizer, self._name = tokenizer, name

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """See `neighbors.Source`."""
    del queries
    return {'source': self._name, 'index': self._searcher.fingerprint}

  def _asked(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice
  ) -> np.ndarray:
    texts = queries.texts(queries.ids(shard, rows), self._tokenizer)
    return np.asarray(texts, object)

  def of_texts(self, texts: Sequence[str], k: int) -> Found:
    """See `neighbors.Source`."""
    return self._searcher.search(texts, k)


class Words(_OfTexts):
  """BM25 or TF-IDF over the words of chunks."""

  def __init__(
    self,
    datastore: chunks_lib.ChunkStore,
    path: str | os.PathLike,
    tokenizer: tokenization.Tokenizer,
    kind: str = 'bm25',
  ):
    """Open the index of `build_words`; `kind` is one of `WORDS`."""
    super().__init__(datastore, WORDS[kind].load(path), path, tokenizer, kind)


def build_words(
  path: str | os.PathLike,
  datastore: chunks_lib.ChunkStore,
  tokenizer: tokenization.Tokenizer,
  kind: str = 'bm25',
  *,
  known: term_counts.Known | None = None,
  **how,
) -> sparse_index.SparseIndex:
  """Build an index of the words of a datastore's chunks, one of `WORDS`.

  Args:
    known: terms of an earlier datastore's chunks, which are not analysed again.
    how: see `sparse_index.SparseIndex.build_store`.

  Raises:
    ValueError: when the tokenizer is not that of the chunks, or where `path` holds
      an index of other chunks.
  """
  texts = chunk_texts(datastore, tokenizer)
  return WORDS[kind].build_store(path, texts, known=known, **how)


def chunk_texts(
  datastore: chunks_lib.ChunkStore, tokenizer: tokenization.Tokenizer
) -> sparse_index.Texts:
  """Return the texts of a datastore's chunks, as those of an index.

  Raises:
    ValueError: when the tokenizer is not that of the chunks.
  """
  datastore.tokens.check_tokenizer(tokenizer)
  prefix = tokenizer.fingerprint.encode()

  def hashes(ids: np.ndarray) -> np.ndarray:
    rows = zip(*datastore.gather(ids, datastore.chunk_length), strict=True)
    found = (tokens_lib.hash_bytes(prefix + x[y].tobytes()) for x, y in rows)
    return np.fromiter(found, np.uint64, len(ids))

  return sparse_index.Texts(
    datastore.fingerprint,
    datastore.num_chunks,
    lambda ids: datastore.texts(ids, tokenizer),
    hashes,
  )


class Topics(_OfTexts):
  """Most similar topic distributions; see `lda`."""

  def __init__(
    self,
    datastore: chunks_lib.ChunkStore,
    path: str | os.PathLike,
    tokenizer: tokenization.Tokenizer,
  ):
    """Open the topics of `build_topics`."""
    super().__init__(datastore, lda_lib.Lda.load(path), path, tokenizer, 'lda')


def build_topics(
  path: str | os.PathLike,
  datastore: chunks_lib.ChunkStore,
  tokenizer: tokenization.Tokenizer,
  config: lda_lib.LdaConfig | None = None,
  progress: shards.Progress | None = None,
) -> lda_lib.Lda:
  """Fit topics to a datastore's chunks and infer those of each; see `lda`.

  Raises:
    ValueError: where `path` holds topics of other chunks or settings.
  """
  return lda_lib.Lda.build(
    path,
    lambda ids: datastore.texts(ids, tokenizer),
    datastore.num_chunks,
    datastore.fingerprint,
    config,
    progress,
  )


class Colbert(_OfTexts):
  """Late interaction: the largest cosines of the tokens of a query (ColBERT).

  A query is cut to the model's `query_length` (32 wordpieces with its specials, unless
  it was trained with more): of a chunk of 64 tokens about the first half asks. Chunks in
  the index are cut to `passage_length` (128). A search that its own document leaves
  short is repeated over all chunks.
  """

  def __init__(
    self,
    datastore: chunks_lib.ChunkStore,
    index: late_interaction.LateInteraction,
    tokenizer: tokenization.Tokenizer,
  ):
    """Take an index of `chunk_texts`."""
    super().__init__(
      datastore,
      index,
      index.path,
      tokenizer,
      'colbert',
      lambda: late_interaction.Unpruned(index),
    )


class Random(searched.Searched):
  """Random chunks, the same at each call."""

  def __init__(self, datastore: chunks_lib.ChunkStore, seed: int = 0):
    """Take the datastore and a seed."""
    super().__init__(datastore, _Draws(datastore.num_chunks, seed))
    self._seed = seed

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """See `neighbors.Source`."""
    del queries
    return {'source': 'random', 'index': f'random {self._seed}'}

  def _asked(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice
  ) -> np.ndarray:
    return queries.ids(shard, rows)

  def of_texts(self, texts: Sequence[str], k: int) -> Found:
    """See `neighbors.Source`."""
    seeds = np.array([zlib.crc32(text.encode()) for text in texts], np.int64)
    ids, scores = self._searcher.search(seeds, k)
    said = np.array([bool(text.strip()) for text in texts], bool)[:, None]
    return np.where(said, ids, -1), np.where(said, scores, -np.inf)


class _Draws:
  """A searcher that draws rows; its queries are seeds."""

  def __init__(self, num_rows: int, seed: int):
    self._num_rows, self._seed = num_rows, seed

  def search(self, queries: np.ndarray, k: int) -> Found:
    ids, scores = base.nothing(len(queries), k)
    kept = min(k, self._num_rows)
    for row, query in enumerate(queries):
      rng = np.random.default_rng((self._seed, int(query)))
      ids[row, :kept] = rng.choice(self._num_rows, kept, replace=False)
    scores[:, :kept] = 0
    return ids, scores


@dataclasses.dataclass(frozen=True)
class Sources:
  """The parts of one datastore's sources; each part opens on first use."""

  datastore: chunks_lib.ChunkStore
  tokenizer: tokenization.Tokenizer
  index: Callable[[], index_lib.Index]  # opens the index of the vectors
  vectors: Callable[[chunks_lib.ChunkStore], store.Store]  # of a chunk store
  embedder: Callable[[], vectors_lib.TextEmbedder]  # loads that of new text
  words: Callable[[str], str | os.PathLike]  # one of `WORDS` -> its folder
  tokens: Callable[[], late_interaction.LateInteraction]  # of ColBERT
  topics: str | os.PathLike = ''  # path of `build_topics`
  words_weight: float = WORDS_WEIGHT  # of `weighted`

  def make(self, name: str) -> neighbors_lib.Source:
    """Return the source of one of `NAMES`.

    Raises:
      FileNotFoundError: when a part has not been made.
      ValueError: for an unknown name, or parts that do not belong together.
    """
    match name:
      case 'dense':
        return Dense(self.datastore, self.index(), self.vectors, self.embedder)
      case 'bm25' | 'tfidf':
        return Words(self.datastore, self.words(name), self.tokenizer, name)
      case 'hybrid':
        return fused.Hybrid(self.make('dense'), self.make('bm25'))
      case 'weighted':
        return fused.Weighted(
          self.make('dense'), self.make('bm25'), self.words_weight
        )
      case 'lda':
        return Topics(self.datastore, self.topics, self.tokenizer)
      case 'colbert':
        return Colbert(self.datastore, self.tokens(), self.tokenizer)
      case 'edit_distance':
        return ordered.EditDistance(
          self.datastore, self.make('bm25'), self.tokenizer
        )
      case 'oracle':
        return ordered.Oracle(
          self.datastore, self.make('hybrid'), self.tokenizer
        )
      case 'random':
        return Random(self.datastore)
    raise ValueError(f'neighbors.source {name!r}: expected one of {NAMES}.')
