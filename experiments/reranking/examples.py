# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of re-rankers: queries, a positive and negatives of the same list.

Nogueira and Cho 2019, section 3; Gao et al. 2021 (arXiv 2101.08751), section 3:
negatives are what the first stage ranks high. Both kinds of examples become a
store, shard by shard, so a killed search continues.

Dimension key: n queries, N negatives, B queries of a batch, P = 1 + drawn
negatives, L row length.
"""

from collections.abc import Sequence
import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np

from experiments.engine import progress
from experiments.open_qa import mining, trained_reader
from experiments.reranking import config as config_lib
from realm_jax.data import examples as examples_lib
from realm_jax.objectives import dpr
from realm_jax.trained import loading as reader_loading
from retrieval import tokenization
from retrieval.index import snapshots, text_index
from retrieval.nn import cross_encoder
from retrieval.questions import question_files, question_sets
from retrieval.search import queries
from retrieval.store import manifests, shards
from retrieval.text import chunks as chunks_lib
from retro_jax.data import folder as retro_data
from retro_jax.trained import loading

KIND = 'chunk_examples'
_NEGATIVES = 50  # of a query, the best ones
_MAX_CHUNKS = 8192  # that are queries
_CHUNKS = 64  # neighboring chunks that are searched together
_SHARD = 16  # of such rows


class _TwoLists:
  """Retriever of the first of dense search, the first of BM25, the second..."""

  unit = 'score'

  def __init__(self, reader: reader_loading.TrainedReader):
    self._blocks, self._data = reader.data.blocks, reader.data
    self._reader = reader
    self.fingerprint = manifests.fingerprint(
      [['dense', 'bm25'], snapshots.fingerprint(reader.params)]
    )

  @functools.cached_property
  def _searches(self) -> tuple[Any, Any]:
    indices = text_index.TextIndices(self._data.root, self._blocks)
    return self._reader.as_realm(), indices.words('bm25')

  def search(self, texts: Sequence[str], depth: int) -> queries.Hits:
    """See `retriever.Retriever`; both lists are `depth` long, unscored."""
    realm, words = self._searches
    k = min(depth // 2, self._blocks.num_blocks)
    lists = realm.retrieve(texts, k), words.search(texts, k)[0]
    ids = without_repeats(np.stack(lists, axis=2).reshape(len(texts), -1))
    return ids, np.where(ids < 0, -np.inf, 0).astype(np.float32)


def without_repeats(ids: np.ndarray) -> np.ndarray:
  """Return ids [b, n] with -1 where an id stands before in the same row."""
  result = np.full_like(ids, -1)
  for row, row_ids in zip(result, ids, strict=True):
    _, first = np.unique(row_ids, return_index=True)
    row[first] = row_ids[first]
  return result


def of_questions(
  config: config_lib.Config, folder: pathlib.Path, name: str
) -> dpr.Examples:
  """Return the examples of a field of config.questions, 'train' or 'dev'.

  Args:
    folder: folder of the stores of examples.
  """
  reader = trained_reader.open_reader(config.examples.run, config.data_dir)
  depth = 2 * config.examples.depth
  mined = mining.mine(
    folder,
    question_sets.of_field(config.questions, name),
    reader.data.blocks,
    _TwoLists(reader),
    depth=depth,
    num_hard_negatives=min(_NEGATIVES, depth - 1),
  )
  # Equal questions of two sets are on the same side of a split.
  questions = [dataclasses.replace(x, id=x.question) for x in mined.questions]
  return dataclasses.replace(
    mined, questions=questions, passages=reader.data.blocks
  )


def of_chunks(
  config: config_lib.Config, folder: pathlib.Path, unused_name: str = 'train'
) -> dpr.Examples:
  """Return the examples of a RETRO run's training chunks."""
  settings = config.examples
  _, saved = loading.find_run(settings.run)
  if config.data_dir:
    saved = dataclasses.replace(saved, data_dir=config.data_dir)
  data = retro_data.DataFolder.of(saved, settings.run)
  chunks = data.chunks('train')
  source = data.datastore.retrievers(saved).make('oracle')
  fields = {
    'chunks': chunks.fingerprint,
    'source': source.fingerprint,
    'depth': settings.depth,
    'max_chunks': _MAX_CHUNKS,
    'seed': config.seed,
    'num_kept': min(_NEGATIVES, settings.depth - 1),
  }
  path = folder / manifests.fingerprint(fields)[:16]
  rows = _chosen_rows(chunks, _MAX_CHUNKS, config.seed)
  parts = [rows[i : i + _SHARD] for i in range(0, len(rows), _SHARD)]

  def find(i, unused_progress):
    ranked = [_ranked(chunks, source, fields, *row) for row in parts[i]]
    names = ('query', 'positive', 'negatives')
    columns = map(np.concatenate, zip(*ranked, strict=True))
    return dict(zip(names, columns, strict=True))

  with progress.bar('find candidates', 'rows of chunks') as update:
    arrays = shards.build_store(
      path, KIND, fields, [*map(len, parts)], find, progress=update
    )
  query, positive, negatives = (
    np.asarray(arrays.array(name)[:])
    for name in ('query', 'positive', 'negatives')
  )
  (usable,) = np.nonzero((positive >= 0) & (negatives[:, 0] >= 0))
  if not len(usable):
    raise ValueError(
      f'{path}: none of {len(query)} chunks has candidates of different scores.'
    )
  questions = [
    question_files.Question(text, text, ())
    for text in chunks.texts(query[usable])
  ]
  return dpr.Examples(
    questions, positive[usable], negatives[usable], chunks, arrays.fingerprint
  )


def _chosen_rows(
  chunks: chunks_lib.ChunkStore, count: int, seed: int
) -> list[tuple[int, slice]]:
  """Choose rows of neighboring chunks: (shard, rows), in their order."""
  rows = [
    (shard, slice(low, min(low + _CHUNKS, n)))
    for shard, n in enumerate(chunks.store.rows('document'))
    for low in range(0, n, _CHUNKS)
  ]
  order = np.random.default_rng(seed).permutation(len(rows))
  return [rows[i] for i in sorted(order[: max(1, count // _CHUNKS)].tolist())]


def _ranked(
  chunks, source, fields, shard: int, rows: slice
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return the chunks [b], their positives [b] and their negatives [b, N]."""
  asked = queries.ChunkQueries(chunks, chunks.ids(shard, rows))
  ids, scores = source.search(asked, fields['depth'])
  lower = scores < scores[:, :1]
  negatives = mining.first_where(ids, lower, fields['num_kept'])
  return asked.ids, ids[:, 0], negatives


def draw(
  negatives: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
  """Draw `count` of each row's negatives without repeats; missing ones are last."""
  order = np.argsort(
    np.where(negatives >= 0, rng.random(negatives.shape), 2.0), axis=1
  )[:, :count]
  drawn = np.take_along_axis(negatives, order, axis=1)
  pad = ((0, 0), (0, count - drawn.shape[1]))
  return np.pad(drawn, pad, constant_values=-1)


def read_rows(
  pairs: dpr.Examples,
  tokenizer: tokenization.WordPieceTokenizer,
  layout: cross_encoder.PairLayout,
  num_negatives: int,
  numbers: np.ndarray,
  rng: np.random.Generator,
) -> examples_lib.Batch:
  """Make a batch of queries [B]; the positive is each row's first passage.

  Returns:
    ids [B, P, L] int32, lengths [B, P] int32 and valid [B, P] bool.
  """
  drawn = draw(pairs.negatives[numbers], num_negatives, rng)
  passages = np.concatenate([pairs.positives[numbers, None], drawn], axis=1)
  texts = iter(pairs.passages.full_texts(passages[passages >= 0]))
  rows = cross_encoder.pair_rows(
    tokenizer,
    layout,
    pairs.texts(numbers),
    [[next(texts) if x >= 0 else '' for x in row] for row in passages],
  )
  ids, lengths = examples_lib.pad(rows, layout.row_length)
  return {
    'ids': ids.reshape(*passages.shape, -1),
    'lengths': lengths.astype(np.int32).reshape(passages.shape),
    'valid': passages >= 0,
  }
