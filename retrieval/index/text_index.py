# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by text: published indices of vectors, and indices of texts in a folder.

`joined_index.open_index` opens the published ones. The others are built at their first
use:

sparse-KIND-KEY/               terms, of bm25 or tfidf
colbert-KEY/{codec,tokens}/    vectors of tokens, of colbert
vectors-KEY/                   vectors of another embedder

They lie in the data folder, or in the user's cache where that cannot be written.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np

from retrieval import arguments, searchers, text_table
from retrieval.index import published_index as index_lib, vectors as vectors_lib
from retrieval.nn import colbert, embedders
from retrieval.search import (
  bm25,
  late_interaction,
  queries as queries_lib,
  retriever as retriever_lib,
  sparse_index,
  tfidf,
  token_store,
  where as where_lib,
)
from retrieval.searchers import base
from retrieval.store import array_store, executors, hub, manifests
from retrieval.text import (
  chunks as chunks_lib,
  packed_runs,
  passages as passages_lib,
)

Embedding = embedders.Embedder | str | os.PathLike | None
WORDS = {'bm25': bm25.Bm25, 'tfidf': tfidf.TfIdf}


@dataclasses.dataclass(frozen=True, repr=False)
class SearchResult(text_table.Short):
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
  # [b][k] FOLDER:ROW of each row, its id in its own folder, '' for none; None where
  # one folder was searched
  places: list[list[str]] | None = None

  def _tables(self) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield each query, the headings, and the cells of its rows."""
    with_texts = self.texts is not None and self.titles is not None
    heads = ['id', self.unit, *(['title', 'text'] if with_texts else [])]
    for b, ids in enumerate(self.ids):
      rows = []
      for j in np.flatnonzero(ids >= 0):
        score = base.in_unit(float(self.scores[b, j]), self.unit)
        place = self.places[b][j] if self.places else str(ids[j])
        rows.append([place, f'{score:.4f}'])
        if with_texts:
          rows[-1] += [self.titles[b][j], self.texts[b][j]]
      yield self.queries[b] if self.queries else f'query {b}', heads, rows

  def __str__(self) -> str:
    return '\n\n'.join(
      f'{query}\n{text_table.lines(heads, rows)}'
      for query, heads, rows in self._tables()
    )

  def _repr_html_(self) -> str:
    return '\n'.join(
      text_table.to_html(heads, rows, caption=query)
      for query, heads, rows in self._tables()
    )


class TextIndex:
  """A published index, with the chunks and the embedder behind its vectors.

  Attributes:
    chunks: chunk i is row i of the index; None where only vectors are known.
  """

  def __init__(
    self,
    index: index_lib.Index,
    chunks: chunks_lib.ChunkStore | None = None,
    vectors: array_store.Store | None = None,
    embedder: Embedding = None,
  ):
    """Take the parts that `open_index` opened; the embedder loads on first use.

    Args:
      embedder: embedder of texts, or its folder; None is all-MiniLM-L6-v2.
    """
    self.index, self.chunks = index, chunks
    self._vectors, self._embedder = vectors, embedder

  @property
  def made_with(self) -> str:
    """Fingerprint of the embedder of the vectors; '' where none is known."""
    if self._vectors is not None:
      return self._vectors.fields['embedder']
    named = self._embedder is not None
    return self.embedder.fingerprint if named else ''

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
    embedder = self._embedder
    if embedder is None and self._vectors is None:
      raise ValueError(
        f'{self.index.path}: holds vectors alone; search it by vectors, or '
        'name the embedder: open_index(path, embedder=...).'
      )
    if not isinstance(embedder, embedders.Embedder):
      # The data folders of RETRO's configs have keys of 128 wordpieces.
      embedder = embedders.Embedder.load(embedder or 'minilm', max_length=128)
    if self._vectors is not None:
      made_with = self._vectors.fields['embedder']
      if made_with != embedder.fingerprint:
        raise ValueError(
          f'{self._vectors.path}: embedded with {made_with}, but the '
          f'embedder is {embedder.fingerprint}; name the right one: '
          'open_index(path, embedder=...).'
        )
    return embedder

  @functools.cached_property
  def retriever(self) -> retriever_lib.Retriever:
    """The retriever of chunks by text."""

    def exact():
      return searchers.exact_of(self.searcher, self._vectors.array('vectors'))

    return retriever_lib.Dense(
      self.chunks,
      self.searcher,
      self.index.fingerprint,
      exact if self._vectors else None,
      embedder=lambda: self.embedder,
    )

  def search(
    self,
    queries: Sequence[str] | Sequence[Sequence[float]] | np.ndarray,
    k: int | None = None,
    where: where_lib.Where | None = None,
  ) -> SearchResult:
    """Find the k best rows of each query.

    Args:
      queries: [b] texts or one text, or [b, d] float vectors. A blank text finds
        nothing.
      k: at most the rows of the index; None is 10, or all where there are fewer.
      where: filter of `retrieval.search.where`, such as {'year': (2010, 2020)}.

    Returns:
      Ids and scores, with texts and titles where the chunks are known.

    Raises:
      ValueError: for vectors of another width or with values that are not finite,
        k out of range, texts without a fitting embedder, or a filter on metadata
        that the documents lack.
    """
    texts = None
    is_list = isinstance(queries, list | tuple) or np.ndim(queries) > 0
    is_float = getattr(queries, 'dtype', np.dtype('O')).kind == 'f'
    if not is_float and (
      not is_list or not len(queries) or isinstance(queries[0], str)
    ):
      texts = list(arguments.texts(queries, 'queries'))
    k = min(10, len(self)) if k is None else k
    base.check_k(k)
    if k > len(self):
      raise ValueError(f'k={k}: expected at most {len(self):,}, all rows here.')
    subset = None
    if where and self.chunks is None:
      raise ValueError(
        f'{self.index.path}: where: no documents are known here.'
      )
    if where:
      subset = where_lib.kept(self.chunks, where)
    if texts is None:
      queries = base.check_queries(queries, self.searcher.dimension, k)
      searcher = self.retriever.index_for(subset)
      ids, scores = searcher.search(queries, k, subset)
      unit = self.searcher.unit
    else:
      asked = queries_lib.Queries(texts, questions=True).among(subset)
      ids, scores = self.retriever.search(asked, k)
      unit = self.retriever.unit
    result = SearchResult(ids, scores, queries=texts, unit=unit)
    if self.chunks is None:
      return result
    rows, titles = map(self.chunks.texts, ids), map(self.chunks.titles, ids)
    return dataclasses.replace(result, texts=[*rows], titles=[*titles])


class TextIndices:
  """Indices of the texts of passages; `how` is as of `shards.build_store`."""

  def __init__(
    self,
    root: str | os.PathLike,
    passages: passages_lib.Passages,
    *,
    colbert: str = '',
  ):
    self.root, self.passages = pathlib.Path(root), passages
    self._colbert = colbert
    self._parts = [
      TextIndices(x.path.parent, x, colbert=colbert) for x in passages.parts
    ]

  def words_path(self, kind: str) -> pathlib.Path:
    """Folder of the index of `WORDS`."""
    return self._place(f'sparse-{kind}-{self.passages.fingerprint[:12]}')

  def _place(self, name: str) -> pathlib.Path:
    path = self.root / name
    above = [x for x in (path, self.root) if x.exists()]
    is_writable = all(os.access(x, os.W_OK) for x in above)
    if not self._parts and (path in above or is_writable):
      return path
    return packed_runs.cache('retrieval') / name

  def words(self, kind: str, **how) -> sparse_index.SparseIndex:
    """Return the index of `WORDS`."""
    if self._parts:
      return WORDS[kind].joined([x.words(kind, **how) for x in self._parts])
    path = self.words_path(kind)
    if path.is_dir():
      return WORDS[kind].load(path)
    logging.info('Building %s over %d passages.', kind, len(self.passages))
    return WORDS[kind].build_store(path, self.passages, **how)

  def dense(self, model: str, **how) -> retriever_lib.Dense:
    """Return exact search by the vectors of an embedder's folder."""
    embedder = embedders.Embedder.load(model)
    vectors = self._vectors(embedder, **how)
    return retriever_lib.Dense(
      self.passages,
      searchers.ExactSearcher(vectors.array('vectors'), embedder.metric),
      vectors.fingerprint,
      embedder=lambda: embedder,
    )

  def _vectors(self, embedder: embedders.Embedder, **how) -> array_store.Store:
    if self._parts:
      stores = [x._vectors(embedder, **how) for x in self._parts]
      return array_store.JoinedStore(stores)
    key = manifests.fingerprint(
      [embedder.fingerprint, self.passages.fingerprint]
    )
    path = self._place(f'vectors-{key[:12]}')
    return vectors_lib.build_vector_store(path, self.passages, embedder, **how)

  def tokens(
    self, **how
  ) -> late_interaction.LateInteraction | late_interaction.JoinedInteraction:
    """Return the index of the ColBERT that is named, or of the only one here.

    Raises:
      FileNotFoundError: if the model is missing.
      ValueError: if no model is named, and there is not one index.
    """
    if self._parts:
      return late_interaction.JoinedInteraction(
        [x.tokens(**how) for x in self._parts]
      )
    if self._colbert:
      return self._build_tokens(self._colbert, **how)
    made = self._token_stores()
    if len(made) != 1:
      raise ValueError(
        f"config.colbert_index.model='': {self.root} has {len(made)} indices of "
        "ColBERTs, expected 1; name a model's folder."
      )
    [(path, stored)] = made.items()
    encoder = _load_encoder(stored.meta['model'])
    return late_interaction.LateInteraction(path, encoder)

  def _token_stores(self) -> dict[pathlib.Path, array_store.Store]:
    """Open the indices of the tokens of these passages; warn of other ones."""
    stores = {}
    expected = {'texts': self.passages.fingerprint, **token_store.SETTINGS}
    for path in sorted(self.root.glob('colbert-*')):
      if (path / 'tokens').is_dir():
        stored, _ = token_store.open_store(path)
        have = {name: stored.fields.get(name) for name in expected}
        if have == expected:
          stores[path] = stored
        else:
          other = manifests.difference(expected, have)
          logging.warning(
            '%s is not searched: made of others (%s).', path, other
          )
    return stores

  def _build_tokens(
    self, model: str, **how
  ) -> late_interaction.LateInteraction:
    encoder = executors.Lazy(_load_encoder, model)
    made_of = [encoder.fingerprint, self.passages.fingerprint]
    key = manifests.fingerprint([*made_of, token_store.SETTINGS])
    path = self._place(f'colbert-{key[:12]}')
    if not model.startswith(hub.PREFIX):
      model = os.path.abspath(model)
    if not path.is_dir():
      for other, stored in self._token_stores().items():
        made_by = stored.meta['model']
        logging.warning('%s is of another model, %s.', other, made_by)
    meta = {'model': model}
    token_store.build(path, encoder, self.passages, meta=meta, **how)
    return late_interaction.LateInteraction(path, encoder)

  def build_those_of(self, old: 'TextIndices', **how) -> None:
    """Build the indices of words and tokens that other passages have.

    An index of a ColBERT that is not where it was, or was trained further, is left
    out.
    """
    for kind in WORDS:
      if old.words_path(kind).is_dir():
        self.words(kind, **how)
    for path, stored in old._token_stores().items():
      try:
        encoder = _load_encoder(stored.meta['model'])
        stored.check_made_of(encoder=encoder.fingerprint)
      except (FileNotFoundError, ValueError) as error:
        logging.warning('%s is not carried over (%s)', path, error)
        continue
      self._build_tokens(stored.meta['model'], **how)


def _load_encoder(model: str) -> Any:
  try:
    return colbert.load(model)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'config.colbert_index.model={model!r}: {error}'
    ) from None
