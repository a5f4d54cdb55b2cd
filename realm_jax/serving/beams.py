# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks retrieved for a question: by vectors, words, both, topics, tokens or at random.

Lee et al. 2019 (ORQA), section 4 (C = 5000); Guu et al. 2020, table 1.
"""

from collections.abc import Callable, Sequence
import concurrent.futures
import dataclasses
import functools
from typing import Any, Protocol, runtime_checkable
import zlib

import jax
from jaxtyping import Float32, Int
import ml_collections
import numpy as np

from realm_jax.data import examples, folder as data_folder, pipeline
from realm_jax.nn import config as config_lib, realm as model_lib
from realm_jax.serving import (
  block_indices,
  model_configs,
  serving,
)
from retrieval import searchers
from retrieval.index import (
  rerankers,
  reranking,
)
from retrieval.search import (
  bm25,
  colbert_index,
  fusion,
  late_interaction,
  lda,
  sparse_index,
)
from retrieval.store import store
from retrieval.text import blocks as blocks_lib

# hybrid: reciprocal rank fusion of dense and bm25; weighted: their weighted scores
KINDS = (
  'dense',
  'bm25',
  'tfidf',
  'lda',
  'hybrid',
  'weighted',
  'colbert',
  'random',
)
WITH_VECTORS = ('dense', 'hybrid', 'weighted')
WORDS_WEIGHT = 0.4  # of `weighted`; held-out questions chose it
# Fields with a value of each block.
_OF_BLOCKS = ('beam_vectors', 'beam_scores')


@dataclasses.dataclass(frozen=True)
class Beam:
  """Blocks retrieved for a batch of questions."""

  ids: Int[np.ndarray, 'b c']  # [B, C] int64 block ids, best first; -1 for none
  # input of the loss: beam_vectors [B, C, d], whose inner product with the
  # query embedder's vectors is the score, or beam_scores [B, C] float32
  fields: examples.Batch
  # [B, C] scores of a search whose fields hold vectors, -inf for none; else None
  scores: Float32[np.ndarray, 'b c'] | None = None


@runtime_checkable
class BlockRetriever(Protocol):
  """Finds blocks for questions."""

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Retrieve the k best blocks of each question ('' for padding)."""


class DenseRetriever:
  """Inner products of the newest query embedder with an index's vectors."""

  def __init__(
    self, config: config_lib.RealmConfig, snapshots: pipeline.Snapshots
  ):
    """Define the query embedder; compile at the first batch."""
    model = model_lib.Realm(config)
    self._snapshots = snapshots
    self._opened: tuple[str, Any, Any] = ('', None, None)
    self._embed = jax.jit(
      lambda params, ids, mask: model.apply(
        {'params': params}, ids, mask, method='embed_queries'
      )
    )

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Retrieves; fields also hold the step of the index, index_step [B] int32."""
    del texts
    index = self._snapshots.serving(None)
    local = _local(serving.embedder_params(params))
    stored, searcher = self._open(index.version)
    ids, scores = _apart(self._search, local, rows, searcher, k)
    vectors = stored[np.maximum(ids, 0)]
    step = np.full(len(ids), index.step, np.int32)
    fields = {'beam_vectors': np.asarray(vectors), 'index_step': step}
    return Beam(ids, fields, np.asarray(scores))

  def _search(self, params: Any, rows: examples.Batch, searcher, k: int) -> Any:
    """Ids and scores of the k best blocks by the inner product: [B, k] each."""
    queries = self._embed(params, rows['question_ids'], rows['question_mask'])
    return searcher.search(np.asarray(queries), k)

  def _open(self, version: Any) -> tuple[Any, searchers.Searcher]:
    """The vectors and the searcher of a version, opened once.

    Processes that train together share an exact search.
    """
    if self._opened[0] != version.name:
      searcher = version.index.searcher
      if jax.process_count() > 1 and isinstance(
        searcher, searchers.ExactSearcher
      ):
        searcher = searcher.over(jax.devices())
      self._opened = (version.name, version.vectors, searcher)
    return self._opened[1:]


def _apart(function: Callable, *arguments: Any) -> Any:
  """Call a function outside the training mesh if it has others' devices."""
  if jax.process_count() == 1:
    return function(*arguments)
  return _outside(function, *arguments)


def _outside(function: Callable, *arguments: Any) -> Any:
  """Call a function outside the mesh of this thread."""
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(function, *arguments).result()


def _local(params: Any) -> Any:
  """Return parameters with which this process can compute alone."""
  if jax.process_count() == 1:
    return params
  mesh = jax.tree.leaves(params)[0].sharding.mesh
  whole = serving.gather(mesh)(params)
  return jax.tree.map(lambda x: x.addressable_data(0), whole)


class WordRetriever:
  """BM25, TF-IDF, topics or late interaction over titles and texts."""

  def __init__(
    self,
    index: sparse_index.SparseIndex
    | lda.Lda
    | late_interaction.LateInteraction,
    scale: float = 1.0,
  ):
    """Take the index and a factor of its scores."""
    self._index, self._scale = index, scale

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Retrieve by the texts."""
    del params, rows
    ids, scores = self._index.search(list(texts), k)
    scores = np.where(ids >= 0, self._scale * scores, 0.0)
    return Beam(ids, {'beam_scores': scores.astype(np.float32)})


class HybridRetriever:
  """One list from those of vectors and of words, at least 100 blocks of each."""

  def __init__(
    self,
    dense: BlockRetriever,
    words: bm25.Bm25,
    words_weight: float | None = None,
  ):
    """Take both searches.

    Args:
      words_weight: weight of the normalised scores of `words`, the rest to 1 that of
        `dense` (`fusion.by_scores`); None fuses ranks (`fusion.by_ranks`).
    """
    self._dense, self._words, self._weight = dense, words, words_weight

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Retrieve by both."""
    n = max(k, fusion.CANDIDATES)
    beam = self._dense(params, rows, texts, n)
    lists = [(beam.ids, beam.scores), self._words.search(list(texts), n)]
    if self._weight is None:
      ids, scores = fusion.by_ranks([found for found, _ in lists], k)
    else:
      weights = 1 - self._weight, self._weight
      ids, scores = fusion.by_scores(lists, weights, k)
    fields = {'beam_scores': np.where(ids >= 0, scores, 0)}
    if 'index_step' in beam.fields:
      fields['index_step'] = beam.fields['index_step']
    return Beam(ids, fields)


class RandomRetriever:
  """Random blocks, the same at each call for a question; a baseline."""

  def __init__(self, num_blocks: int):
    """Take the number of blocks."""
    self._num_blocks = num_blocks

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Retrieve blocks drawn with the question as the seed."""
    del params, rows
    ids = np.full((len(texts), k), -1, np.int64)
    kept = min(k, self._num_blocks)
    for row, text in zip(ids, texts, strict=True):
      rng = np.random.default_rng(zlib.crc32(text.encode()))
      row[:kept] = rng.choice(self._num_blocks, kept, replace=False)
    return Beam(ids, {'beam_scores': np.zeros(ids.shape, np.float32)})


class RerankedRetriever:
  """A retriever whose first blocks a re-ranker orders anew.

  The fields of the loss go with their blocks, so a reader adds the scores that it
  was trained with.

  Attributes:
    fingerprint: hash of the re-ranker and of the number of candidates.
  """

  def __init__(
    self,
    inner: BlockRetriever,
    reranker: reranking.Reranker,
    blocks: blocks_lib.BlockStore,
    candidates: int,
    read: Callable[[np.ndarray], list[Any]] | None = None,
  ):
    """Take the retriever of candidates and how many of them are ordered.

    Args:
      read: returns what the re-ranker scores of blocks; None for their texts below
        their titles. An index of late interaction scores their numbers.
    """
    self._inner, self._reranker = inner, reranker
    self._read = read or functools.partial(block_indices.titled_texts, blocks)
    self._candidates = min(candidates, blocks.num_blocks)
    self.fingerprint = store.fingerprint([reranker.fingerprint, candidates])

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Retrieve max(k, candidates) blocks, and keep the first k."""
    found = self._inner(params, rows, texts, max(k, self._candidates))
    asked = np.array([bool(text.strip()) for text in texts], bool)[:, None]
    order, scores = _outside(  # the re-ranker has a mesh of its own
      reranking.rerank,
      self._reranker,
      texts,
      np.where(asked, found.ids, -1),  # padding costs nothing
      self._read,
      self._candidates,
    )
    order = order[:, :k]
    fields = {
      name: x[np.arange(len(x))[:, None], order] if name in _OF_BLOCKS else x
      for name, x in found.fields.items()
    }
    ids = np.take_along_axis(found.ids, order, axis=1)
    return Beam(ids, fields, scores[:, :k])


def make_retriever(
  config: ml_collections.ConfigDict,
  data: data_folder.DataFolder,
  snapshots: pipeline.Snapshots | None,
  progress: Callable[[int, int], None] | None = None,
) -> BlockRetriever:
  """Return the retriever of config.retriever, re-ranked as config.reranker says.

  Args:
    snapshots: index of the blocks' vectors, for those of `WITH_VECTORS`.
    progress: called with (blocks done, blocks in all) while an index of ColBERT is
      built.

  Raises:
    ValueError: for an unknown kind.
  """
  found = _make_first_stage(config, data, snapshots, progress)
  # Checkpoints of before there were re-rankers have no such section.
  settings = config.get('reranker')
  if not settings or not settings.path:
    return found
  section = colbert_index.section_of(config)
  if settings.path == section.model:
    index = block_indices.token_index(data, section, progress)
    return RerankedRetriever(
      found, index, data.blocks, settings.candidates, read=np.ndarray.tolist
    )
  return RerankedRetriever(
    found, rerankers.load(settings.path), data.blocks, settings.candidates
  )


def _make_first_stage(
  config: ml_collections.ConfigDict,
  data: data_folder.DataFolder,
  snapshots: pipeline.Snapshots | None,
  progress: Callable[[int, int], None] | None,
) -> BlockRetriever:
  kind = config.retriever
  if kind == 'random':
    return RandomRetriever(data.blocks.num_blocks)
  lookup = config.lookup
  if kind in WITH_VECTORS:
    dense = DenseRetriever(
      model_configs.realm_config(config, data.tokenizer.vocab_size), snapshots
    )
    if kind == 'dense':
      return dense
    # Runs of before there was a weight do not have one.
    weight = lookup.get('words_weight', WORDS_WEIGHT)
    return HybridRetriever(
      dense,
      block_indices.word_index(data, 'bm25'),
      weight if kind == 'weighted' else None,
    )
  if kind == 'lda':
    topics = lookup.get('num_topics', lda.LdaConfig.num_topics)
    return WordRetriever(block_indices.topic_index(data, topics), 1.0)
  if kind == 'colbert':
    section = colbert_index.section_of(config)
    return WordRetriever(block_indices.token_index(data, section, progress))
  if kind not in block_indices.WORDS:
    raise ValueError(f'retriever {kind!r}: expected one of {KINDS}.')
  return WordRetriever(block_indices.word_index(data, kind), lookup.bm25_scale)
