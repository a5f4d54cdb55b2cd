# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Beams: blocks retrieved for questions, and the few of them that a reader reads.

Lee et al. 2019 (ORQA), sections 3 and 4 (C = 5000); Guu et al. 2020, table 1.
"""

from collections.abc import Callable, Mapping, Sequence
import concurrent.futures
import dataclasses
from typing import Any

import jax
from jaxtyping import Float32, Int
import numpy as np

from realm_jax.data import (
  examples,
  folder as data_folder,
  pipeline,
  question_rows,
  reader_rows,
)
from realm_jax.nn import config as config_lib
from realm_jax.trained import embedders, model_configs, reader_configs
from retrieval import arguments, searchers
from retrieval.questions import answer_search
from retrieval.search import (
  names,
  queries as queries_lib,
  retriever as retriever_lib,
)
from retrieval.searchers import base, subset as subset_lib

KINDS = names.FOR_TEXTS
WITH_VECTORS = names.WITH_VECTORS
_WORDS_SCALE = 0.2  # factor on scores by words


@dataclasses.dataclass(frozen=True)
class Beam:
  """Blocks retrieved for a batch of questions."""

  ids: Int[np.ndarray, 'b c']  # [B, C] int64 block ids, best first; -1 for none
  scores: Float32[np.ndarray, 'b c']  # that they are ordered by, -inf for none
  # input of the loss: beam_vectors [B, C, d], whose inner product with the
  # query embedder's vectors is the score, or beam_scores [B, C] float32
  fields: examples.Batch


class NewestIndex:
  """The newest index version, searched by vectors of the newest query embedder."""

  unit = 'inner product'

  def __init__(
    self, config: config_lib.RealmConfig, snapshots: pipeline.Snapshots
  ):
    self._snapshots = snapshots
    self.version = None
    self._embed = embedders.query_encoder(config)

  def embed(self, params: Any, rows: examples.Batch) -> np.ndarray:
    """Return vectors [B, d] of questions, and open the newest version.

    Processes that train together share an exact search.
    """
    version = self._snapshots.serving(None).version
    if self.version is None or self.version.name != version.name:
      self._searcher = version.index.searcher
      if jax.process_count() > 1 and isinstance(
        self._searcher, searchers.ExactSearcher
      ):
        self._searcher = self._searcher.over(jax.devices())
    self.version = version
    params = embedders.embedder_params(params)
    if jax.process_count() > 1:  # whole ones on this process's devices
      mesh = jax.tree.leaves(params)[0].sharding.mesh
      params = jax.tree.map(
        lambda x: x.addressable_data(0), embedders.gather(mesh)(params)
      )
    asked = rows['question_ids'], rows['question_mask']
    return np.asarray(_apart(self._embed, params, *asked))

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> base.Hits:
    """See `exclude.Index`."""
    return _apart(self._searcher.search, queries, k, subset)


def _apart(function: Callable, *arguments: Any) -> Any:
  """Call a function outside the training mesh if it has others' devices."""
  if jax.process_count() == 1:
    return function(*arguments)
  return _outside(function, *arguments)


def _outside(function: Callable, *arguments: Any) -> Any:
  """Call a function outside the mesh of this thread."""
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(function, *arguments).result()


class BeamRetriever:
  """A retriever of blocks, with the inputs of the loss.

  Re-ranking changes the order of the blocks alone. Their scores in the loss stay
  those of the retriever, with which the reader was trained.
  """

  def __init__(
    self,
    retriever: retriever_lib.Retriever,
    scale: float = 1.0,
    newest: NewestIndex | None = None,
    subset: subset_lib.Subset | None = None,
  ):
    """Take the retriever, a factor of its scores, and the embedder of questions.

    `subset` are the blocks to search; None is all.
    """
    self._subset = subset
    self._inner, self._rerank = retriever, None
    self._scale, self._newest = scale, newest
    self.unit = retriever.unit  # of the scores, before the factor
    self.reranker = ''  # fingerprint of one that re-ranks
    if hasattr(retriever, 'order'):  # a `rerank.Reranked`
      self._inner, self._rerank = retriever.inner, retriever
      self.reranker = retriever.fingerprint
    self._of_vectors = isinstance(self._inner, retriever_lib.Dense) and newest

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Retrieve the k best blocks of each question ('' for padding)."""
    texts, vectors, fields = arguments.texts(texts, 'texts'), None, {}
    if self._newest:
      vectors = self._newest.embed(params, rows)
      step = self._newest.version.step
      fields['index_step'] = np.full(len(texts), step, np.int32)
    queries = queries_lib.Queries(texts, vectors, questions=True)
    queries = queries.among(self._subset)
    n = max(k, self._rerank.candidates) if self._rerank else k
    ids, scores = self._inner.search(queries, n)
    scores = order_by = np.where(ids >= 0, self._scale * scores, -np.inf)
    if self._rerank:  # which has a mesh of its own
      order, order_by = _outside(self._rerank.order, queries, ids)
      ids, scores = (np.take_along_axis(x, order, 1) for x in (ids, scores))
    ids, scores, order_by = ids[:, :k], scores[:, :k], order_by[:, :k]
    if self._of_vectors:
      stored = self._newest.version.vectors
      fields['beam_vectors'] = np.asarray(stored[np.maximum(ids, 0)])
    else:
      filled = np.where(ids >= 0, scores, 0.0)
      fields['beam_scores'] = filled.astype(np.float32)
    return Beam(ids, order_by.astype(np.float32), fields)


class TextRetriever:
  """A trained reader's retriever of texts, as `retrieval.search.retriever`."""

  def __init__(self, trained: Any, retriever: BeamRetriever):
    """Place the embedder of a `loading.TrainedReader`."""
    self._retriever, self.unit = retriever, retriever.unit
    self._params = jax.device_put(embedders.embedder_params(trained.params))
    self._tokenizer = trained.data.tokenizer
    self._layout = reader_configs.reader_layout(trained.config, trained.data)

  def search(
    self, texts: Sequence[str], k: int
  ) -> tuple[Int[np.ndarray, 'b k'], Float32[np.ndarray, 'b k']]:
    """Return ids and scores of blocks, best first; -1 and -inf for none."""
    texts = list(arguments.texts(texts, 'texts'))
    tokens = [x.ids for x in self._tokenizer.encode_batch(texts)]
    rows = reader_rows.question_rows(self._layout, tokens)
    beam = self._retriever(self._params, rows, texts, k)
    return beam.ids, beam.scores


def make_retriever(
  config: reader_configs.ReaderConfig,
  data: data_folder.DataFolder,
  snapshots: pipeline.Snapshots | None,
  progress: Callable[[int, int], None] | None = None,
  embedder: str = '',
) -> BeamRetriever:
  """Return the retriever of config.retriever, re-ranked as config.reranker says.

  `snapshots` is the index of the blocks' vectors, for those of `WITH_VECTORS`,
  unless `embedder` names the folder of an embedder in its place;
  `progress` shows the building of missing indices of texts.
  """
  kind, blocks, newest = config.retriever, data.blocks, None
  if kind in WITH_VECTORS and not embedder:
    newest = NewestIndex(
      model_configs.realm_config(config, data.tokenizer.vocab_size), snapshots
    )
  if kind == 'dense' and newest and not config.reranker.path:
    retriever = retriever_lib.Dense(blocks, newest)
  else:
    retriever = _of_texts(config, data, newest, progress, embedder)
  scale = _WORDS_SCALE if kind in names.WORDS else 1.0
  subset = None
  if config.lookup.where:
    from retrieval.search import where as where_lib

    subset = where_lib.some(blocks, config.lookup.where, 'lookup.where')
  return BeamRetriever(retriever, scale, newest, subset)


def _of_texts(
  config: reader_configs.ReaderConfig,
  data: data_folder.DataFolder,
  newest: NewestIndex | None,
  progress: Callable[[int, int], None] | None,
  embedder: str,
) -> retriever_lib.Retriever:
  """Return a retriever with indices of texts, or re-ranked."""
  from retrieval.index import retrievers, text_index
  from retrieval.search import rerank

  indices = text_index.TextIndices(
    data.root, data.blocks, colbert=config.colbert_index.model
  )

  def vectors():
    if embedder:
      return indices.dense(embedder, progress=progress)
    return retriever_lib.Dense(data.blocks, newest)

  retriever = retrievers.Retrievers(
    indices, vectors, config.lookup.words_weight, progress=progress
  ).make(config.retriever)
  section = config.reranker
  if not section.path:
    return retriever
  if section.path == config.colbert_index.model and not data.blocks.parts:
    model = indices.tokens(progress=progress)
  else:
    model = rerank.ByTexts(rerank.load(section.path), data.blocks)
  count = min(section.candidates, len(data.blocks))
  return rerank.Reranked(retriever, model, count)


class BeamSelector:
  """Retrieves C blocks of each question, and builds rows of the best R."""

  def __init__(
    self,
    config: reader_configs.ReaderConfig,
    data: data_folder.DataFolder,
    retriever: BeamRetriever,
    *,
    search: bool = True,
    train_blocks: bool = False,
  ):
    """Check the beams of config.lookup; at most all blocks are retrieved.

    Args:
      search: whether batches mark the blocks with an answer.
      train_blocks: whether batches hold rows of the block embedder.
    """
    lookup, self._blocks = config.lookup, data.blocks
    if lookup.reader_beam > lookup.retriever_beam:
      raise ValueError(
        f'reader_beam={lookup.reader_beam} and retriever_beam='
        f'{lookup.retriever_beam}: expected reader_beam <= retriever_beam.'
      )
    self.retriever_beam = min(lookup.retriever_beam, self._blocks.num_blocks)
    self.reader_beam = min(lookup.reader_beam, self.retriever_beam)
    self._layout = reader_configs.reader_layout(config, data)
    self._block_layout = data.layout(config) if train_blocks else None
    self._retriever, self._search = retriever, None
    if search:
      self._search = answer_search.QuestionSearch(self._blocks, lookup.rule)

  def select(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: question_rows.QuestionSource,
  ) -> examples.Batch:
    """Complete a batch of `question_rows.make_dataset` by its blocks.

    Returns:
      The batch with the arrays of `beams`, `reader_rows.reader_rows` and the
      source's gold fields; beam_ids [B, C] int32, -1 for none.
    """
    indices = np.where(
      batch['row_valid'], batch['question_index'], question_rows.NONE
    )
    asked = [source.questions[i] if i >= 0 else None for i in indices.tolist()]
    texts = [question.question if question else '' for question in asked]
    beam = self._retriever(params, batch, texts, self.retriever_beam)
    ids = np.where(batch['row_valid'][:, None], beam.ids, -1)
    read = ids[:, : self.reader_beam]
    fields = dict(batch) | beam.fields
    fields |= reader_rows.reader_rows(
      self._layout, self._blocks, read, source.tokens(indices)
    )
    fields |= {'beam_ids': ids.astype(np.int32), 'beam_valid': ids >= 0}
    if self._block_layout is not None:
      rows = examples.titled_blocks(
        self._block_layout, self._blocks, read.reshape(-1)
      )
      fields |= examples.name_rows('block', rows, read.shape)
    fields |= source.gold_fields(indices, self._blocks, read, fields)
    if self._search is not None:
      fields['beam_has_answer'] = self._search.find(ids, asked)
    return fields
