# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by text or by vector in a published index, with the texts that it finds."""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import html
import os
import pathlib

import numpy as np

from retrieval import searchers, text_table
from retrieval.index import (
  index as index_lib,
  vectors as vectors_lib,
)
from retrieval.nn import embedders
from retrieval.search import retriever as retriever_lib
from retrieval.searchers import base
from retrieval.store import store
from retrieval.text import chunks as chunks_lib


@dataclasses.dataclass(frozen=True, repr=False)
class SearchResult:
  """The best rows of an index for each query."""

  ids: np.ndarray  # [b, k] int64, best first; -1 where there are fewer than k
  # [b, k] float32, larger is better; -inf where there are fewer than k
  scores: np.ndarray
  # [b][k] text of each row, '' for none; None where only vectors are known
  texts: list[list[str]] | None = None
  # [b][k] title of each row's document; None as for `texts`
  titles: list[list[str]] | None = None
  # [b] texts that were searched; None for vectors
  queries: list[str] | None = None
  unit: str = 'score'  # of the scores, as of `retriever.Retriever`

  def _tables(self) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield each query, and the cells of its rows below their headings."""
    with_texts = self.texts is not None and self.titles is not None
    heads = ['id', self.unit, *(['title', 'text'] if with_texts else [])]
    for b, ids in enumerate(self.ids):
      rows = [heads]
      for j in np.flatnonzero(ids >= 0):
        score = base.in_unit(float(self.scores[b, j]), self.unit)
        rows.append([str(ids[j]), f'{score:.4f}'])
        if with_texts:
          rows[-1] += [self.titles[b][j], self.texts[b][j]]
      yield self.queries[b] if self.queries else f'query {b}', rows

  def __repr__(self) -> str:
    """Return one table a query."""
    return '\n\n'.join(
      f'{query}\n{text_table.lines(rows[0], rows[1:])}'
      for query, rows in self._tables()
    )

  def _repr_html_(self) -> str:
    """Return one table a query for a notebook."""
    tables = []
    for query, rows in self._tables():
      parts = [f'<caption>{html.escape(query)}</caption>']
      for tag, row in zip(['th', *['td'] * len(rows)], rows, strict=False):
        cells = (f'<{tag}>{html.escape(cell)}</{tag}>' for cell in row)
        parts.append(f'<tr>{"".join(cells)}</tr>')
      tables.append(f'<table>{"".join(parts)}</table>')
    return '\n'.join(tables)


class TextIndex:
  """A published index, with the chunks and the embedder behind its vectors.

  Attributes:
    chunks: chunk i is row i of the index; None where only vectors are known.
  """

  def __init__(
    self,
    index: index_lib.Index,
    chunks: chunks_lib.ChunkStore | None = None,
    vectors: store.Store | None = None,
    embedder: embedders.Embedder | str | os.PathLike | None = None,
  ):
    """Take what `open_index` opened; the embedder loads on first use.

    Args:
      embedder: embedder of texts, or its folder; None is all-MiniLM-L6-v2.
    """
    self.index, self.chunks = index, chunks
    self._vectors, self._given = vectors, embedder

  @property
  def searcher(self) -> searchers.Searcher:
    """The searcher over the vectors."""
    return self.index.searcher

  def __len__(self) -> int:
    return self.searcher.num_vectors

  @functools.cached_property
  def embedder(self) -> embedders.Embedder:
    """The embedder of the indexed vectors.

    Raises:
      ValueError: if no embedder is known, or another one made the vectors.
    """
    found = self._given
    if found is None and self._vectors is None:
      raise ValueError(
        f'{self.index.path}: holds vectors alone; search it by vectors, or '
        'name the embedder: open_index(path, embedder=...).'
      )
    if not isinstance(found, embedders.Embedder):
      # The data folders of RETRO's configs have keys of 128 wordpieces.
      found = embedders.Embedder.load(found or 'minilm', max_length=128)
    if self._vectors is not None:
      made_with = self._vectors.fields['embedder']
      if made_with != found.fingerprint:
        raise ValueError(
          f'{self._vectors.path}: embedded with {made_with}, but the given '
          f'embedder is {found.fingerprint}; name the right one: '
          'open_index(path, embedder=...).'
        )
    return found

  @functools.cached_property
  def retriever(self) -> retriever_lib.Retriever:
    """The retriever of chunks by text."""
    return retriever_lib.Dense(
      self.chunks,
      self.searcher,
      self.index.fingerprint,
      embedder=lambda: self.embedder,
    )

  def search(
    self,
    queries: Sequence[str] | Sequence[Sequence[float]] | np.ndarray,
    k: int | None = None,
  ) -> SearchResult:
    """Find the k best rows of each query.

    Args:
      queries: [b] texts, or [b, d] float vectors. A blank text finds nothing.
      k: at most the rows of the index; None is 10, or all where there are fewer.

    Returns:
      Ids and scores, with texts and titles where the chunks are known.

    Raises:
      ValueError: for one string, vectors of another width or with values that
        are not finite, k out of range, or texts without a fitting embedder.
    """
    k = min(10, len(self)) if k is None else k
    if k > len(self):
      raise ValueError(f'k={k}: expected at most {len(self):,}, all rows here.')
    if isinstance(queries, str):
      raise ValueError(f'{queries!r}: expected a list of texts, [text].')
    texts, unit = None, self.searcher.unit
    if isinstance(queries, np.ndarray) and queries.dtype.kind == 'f':
      ids, scores = self.searcher.search(queries, k)
    elif all(isinstance(query, str) for query in queries):
      texts = list(queries)
      ids, scores = self.retriever.search(texts, k)
    else:
      ids, scores = self.searcher.search(np.asarray(queries, np.float32), k)
    if self.chunks is None:
      return SearchResult(ids, scores, queries=texts, unit=unit)
    found, titles = map(self.chunks.texts, ids), map(self.chunks.titles, ids)
    return SearchResult(ids, scores, [*found], [*titles], texts, unit)


def open_index(
  path: str | os.PathLike,
  *,
  embedder: embedders.Embedder | str | os.PathLike | None = None,
  cluster: str | None = None,
) -> TextIndex:
  """Open an index for search by text or by vector.

  Args:
    path: folder of a published index; or folder that holds one as `index/`,
      such as a data folder of RETRO, whose chunks then give texts and titles.
    embedder: embedder of texts, or its folder; None is the packaged
      all-MiniLM-L6-v2 where the data folder records that it was used.
    cluster: address of a Ray cluster whose machines hold the shards of an index,
      such as 'auto'; '' searches in this process. None is what a command's
      `config.cluster.hold_shards` chose, else ''.

  Raises:
    ValueError: if the index is damaged, or is not of the folder's vectors.
  """
  root = pathlib.Path(path)
  if (root / index_lib.MANIFEST).exists() or not (root / 'index').is_dir():
    index = index_lib.open_index(root, cluster=cluster)
    return TextIndex(index, embedder=embedder)
  index = index_lib.open_index(root / 'index', cluster=cluster)
  if not (root / 'chunks-train').is_dir():
    return TextIndex(index, embedder=embedder)
  vectors = store.Store.open(root / 'vectors-train', vectors_lib.KIND)
  chunks = chunks_lib.ChunkStore(root / 'chunks-train')
  index_lib.check_vectors(index, vectors)
  vectors_lib.check_passages(vectors, chunks)
  return TextIndex(index, chunks, vectors, embedder)
