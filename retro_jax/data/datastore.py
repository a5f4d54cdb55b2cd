# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search in a data folder's training chunks: vectors, indices and retrievers."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

from retrieval import arguments, searchers, tokenization
from retrieval.index import (
  datastore_subsets,
  neighbors as neighbors_lib,
  published_index as index_lib,
  retrievers as retrievers_lib,
  text_index,
  vectors as vectors_lib,
)
from retrieval.nn import embedders
from retrieval.search import (
  queries as queries_lib,
  rerank,
  retriever as retriever_lib,
  where as where_lib,
)
from retrieval.store import array_store, manifests
from retrieval.text import chunks as chunks_lib, data_folder
from retro_jax.data import samples


def load_embedder(config: Any) -> embedders.Embedder:
  """Load the embedder of the chunks; config is `folder.Embedder`."""
  return embedders.Embedder.load(
    config.path or 'minilm',
    max_length=config.max_length,
    dtype=config.dtype or None,
  )


@dataclasses.dataclass(frozen=True)
class NeighborLookup:
  """Retrieves neighbors for new text."""

  retriever: retriever_lib.Retriever
  datastore: chunks_lib.ChunkStore
  tokenizer: tokenization.Tokenizer
  neighbor_length: int  # r, tokens of a neighbor with its continuation
  # part of a neighbor that is read, one of `chunks.PARTS`
  neighbor_part: str = 'full'

  def retrieve(
    self, texts: Sequence[str], k: int, questions: bool = False
  ) -> list[samples.ChunkNeighbors]:
    """Retrieve the k nearest chunks of each text; a blank text finds none.

    Where there are fewer chunks than k, the other neighbors have the id -1.

    Args:
      questions: whether the texts are questions. Other texts are embedded as the
        chunks are, with the prompt of passages.
    """
    texts = arguments.texts(texts, 'texts')
    asked = queries_lib.Queries(texts, questions=questions)
    ids, scores = self.retriever.search(asked, k)
    tokens, mask = self.datastore.gather(
      ids, self.neighbor_length, self.neighbor_part
    )
    titles = [self.datastore.titles(row) for row in ids]
    rows = zip(ids, scores, tokens, mask, titles, strict=True)
    unit = self.retriever.unit
    return [samples.ChunkNeighbors(*row, unit) for row in rows]

  def retrieve_tokens(
    self, rows: Sequence[np.ndarray], k: int
  ) -> list[samples.ChunkNeighbors]:
    """Retrieve for arrays of token ids, special tokens included."""
    return self.retrieve([self.tokenizer.decode(row) for row in rows], k)


@dataclasses.dataclass(frozen=True)
class Datastore:
  """The training chunks of a data folder, and their retrievers."""

  folder: data_folder.DataFolder  # of `retro_jax.data.folder`

  def vectors(self, split: str) -> array_store.Store:
    """Keys of a split's chunks; ValueError where they are of other chunks."""
    vectors = array_store.Store.open(
      self.folder.path(f'vectors-{split}'), vectors_lib.KIND
    )
    if self.folder.path(f'chunks-{split}').is_dir():
      vectors.check_made_of(passages=self.folder.chunks(split).fingerprint)
    return vectors

  @functools.cached_property
  def index(self) -> index_lib.Index:
    """The published index; ValueError where it is of other vectors."""
    index = index_lib.open_index(self.folder.path('index'))
    if self.folder.path('vectors-train').is_dir():
      index_lib.check_vectors(index, self.vectors('train'))
    return index

  def lookup(self, config: Any) -> NeighborLookup:
    """The look-up of neighbors in this folder's datastore, for new text."""
    return NeighborLookup(
      self.retriever(config),
      self.folder.chunks('train'),
      self.folder.tokenizer,
      config.model.neighbor_length,
      config.neighbor_part,
    )

  def retriever(self, config: Any) -> retriever_lib.Retriever:
    """Return the retriever of neighbors, in the order of the re-ranker.

    Raises:
      ValueError: for a filter on other metadata, or one that no chunk fits.
    """
    retriever = self.retrievers(config).make(self.folder.source)
    chunks = self.folder.chunks('train')
    if self.folder.reranker:
      model = rerank.load(self.folder.reranker)
      retriever = rerank.Reranked(
        retriever, rerank.ByTexts(model, chunks), config.neighbors.candidates
      )
    where = config.neighbors.where
    subset = where_lib.some(chunks, where, 'neighbors.where')
    return retriever_lib.Among(retriever, subset) if subset else retriever

  def neighbors_in_part(
    self,
    root: str | os.PathLike,
    split: str,
    share: float,
    k: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
  ) -> pathlib.Path:
    """Find the k neighbors of a split's chunks in a random share of the datastore.

    Returns:
      The neighbor store, a folder below `root`. An existing store is used again.

    Raises:
      ValueError: for another source than dense, whose vectors are searched.
    """
    if self.folder.source_name != 'dense':
      raise ValueError(
        f'A part of the datastore is searched by vectors, but the source of the '
        f'neighbors is {self.folder.source_name}; expected dense.'
      )
    metric = self.index.searcher.metric
    chunks, vectors = (
      [open_store(x) for x in (split, 'train')]
      for open_store in (self.folder.chunks, self.vectors)
    )
    part = datastore_subsets.part_retriever(
      vectors[0], chunks[1], vectors[1], metric=metric, share=share, seed=seed
    )
    made_of = [x.fingerprint for x in (*chunks, part)]
    name = (
      f'neighbors-{split}-{share:g}-{manifests.fingerprint([*made_of, k])[:12]}'
    )
    path = pathlib.Path(root) / 'sweep_datastore' / name
    neighbors_lib.build_neighbor_store(
      path, *chunks, part, k=k, progress=progress
    )
    return path

  def text_indices(self, config: Any) -> text_index.TextIndices:
    """Return the indices of the texts of the datastore."""
    chunks = self.folder.chunks('train')
    if config.neighbors.titled:
      chunks = chunks_lib.TitledChunks(chunks.path, chunks.tokens)
    return text_index.TextIndices(
      self.folder.root,
      chunks,
      colbert=config.neighbors.colbert,
    )

  def retrievers(self, config: Any) -> retrievers_lib.Retrievers:
    """Return the retrievers of this folder's datastore."""
    return retrievers_lib.Retrievers(
      self.text_indices(config),
      functools.partial(self._dense, config),
      config.neighbors.words_weight,
      seed=(0,),
    )

  def embedder(self, config: Any) -> embedders.Embedder:
    """Load the embedder of the vectors; ValueError where the config names another."""
    embedder = load_embedder(config.embedder)
    vectors = self.vectors('train')
    if vectors.fields['embedder'] != embedder.fingerprint:
      raise ValueError(
        f'{vectors.path}: embedded with {vectors.fields["embedder"]}, but the config '
        f'names embedder {embedder.fingerprint}.'
      )
    return embedder

  def _dense(self, config: Any) -> retriever_lib.Retriever:
    index, vectors = self.index, self.vectors('train')
    return retriever_lib.Dense(
      self.folder.chunks('train'),
      index.searcher,
      index.fingerprint,
      lambda: searchers.exact_of(index.searcher, vectors.array('vectors')),
      embedder=lambda: self.embedder(config),
      vectors=lambda x: self.vectors(x.path.name.removeprefix('chunks-')),
    )
