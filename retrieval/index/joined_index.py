# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of texts opened for search, one or several as one."""

from collections.abc import Sequence
import dataclasses
import functools
import os
import pathlib

import numpy as np

from retrieval import searchers
from retrieval.index import (
  published_index as index_lib,
  text_index,
  vectors as vectors_lib,
)
from retrieval.nn import embedders as embedders_lib
from retrieval.search import fuse, retriever as retriever_lib
from retrieval.searchers import joined
from retrieval.store import array_store, manifests
from retrieval.text import chunks as chunks_lib, joined as joined_lib


class JoinedIndex(text_index.TextIndex):
  """Several indices, its `parts`, as one; ids run through all, in turn."""

  def __init__(
    self, parts: Sequence[text_index.TextIndex], names: Sequence[str]
  ):
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

  def search(self, queries, k=None, where=None) -> text_index.SearchResult:
    """See `TextIndex`."""
    result = super().search(queries, k, where)
    flat = joined_lib.places(self._sizes, result.ids.reshape(-1))
    rows = zip(*flat, strict=True)
    places = [f'{self._names[x]}:{i}' if i >= 0 else '' for x, i in rows]
    places = np.reshape(places, result.ids.shape).tolist()
    return dataclasses.replace(result, places=places)


def open_index(
  path: str | os.PathLike | Sequence[str | os.PathLike],
  *,
  embedder: text_index.Embedding | Sequence[text_index.Embedding] = None,
  cluster: str | None = None,
) -> text_index.TextIndex:
  """Open an index for search by text or by vector, or several as one.

  Scores of several indices are compared where one embedder and one metric made them;
  else the indices are fused by the reciprocals of the ranks.

  Args:
    path: folder of a published index; or folder that holds one as `index/`,
      such as a data folder of RETRO, whose chunks then give texts and titles; or
      several such folders.
    embedder: embedder of texts, or its folder; None is the packaged
      all-MiniLM-L6-v2 where the data folder records that it was used. Of several
      folders, one for all or a list with one for each.
    cluster: address of a Ray cluster whose machines hold the shards of an index,
      such as 'auto'; '' searches in this process. None is what a command's
      `config.cluster.hold_shards` chose, else ''.

  Raises:
    ValueError: if the index is damaged, or is not of the folder's vectors.
  """
  if isinstance(path, list | tuple):
    several = isinstance(embedder, list | tuple)
    each = embedder if several else [embedder] * len(path)
    if not path or len(each) != len(path):
      raise ValueError(
        f'path: {len(path)} folders, embedder: {len(each)}; expected a folder or '
        'more, and an embedder for all or for each.'
      )
    opened = [
      open_index(x, embedder=y, cluster=cluster)
      for x, y in zip(path, each, strict=True)
    ]
    return JoinedIndex(opened, joined_lib.names_of(path))
  root = pathlib.Path(path)
  alone = (root / index_lib.MANIFEST).exists() or not (root / 'index').is_dir()
  folder = root if alone else root / 'index'
  index = index_lib.open_index(folder, cluster=cluster)
  if alone or not (root / 'chunks-train').is_dir():
    return text_index.TextIndex(index, embedder=embedder)
  vectors = array_store.Store.open(root / 'vectors-train', vectors_lib.KIND)
  chunks = chunks_lib.ChunkStore(root / 'chunks-train')
  index_lib.check_vectors(index, vectors)
  vectors.check_made_of(passages=chunks.fingerprint)
  return text_index.TextIndex(index, chunks, vectors, embedder)
