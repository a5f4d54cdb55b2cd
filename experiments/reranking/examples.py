# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of re-rankers: queries, a positive and negatives of the same list.

Nogueira and Cho 2019, section 3; Gao et al. 2021 (arXiv 2101.08751), section 3:
negatives are what the first stage ranks high. Both kinds of examples become a
store, shard by shard, so a killed search continues.

Dimension key: n queries, N negatives, B queries of a batch, P = 1 + drawn
negatives, L row length.
"""

import dataclasses
import pathlib

import numpy as np

from experiments.engine import progress
from experiments.open_qa import config as qa_config, mining, trained_reader
from experiments.reranking import config as config_lib
from realm_jax.data import examples as examples_lib
from realm_jax.objectives import dpr
from retrieval import tokenization
from retrieval.nn import cross_encoder
from retrieval.questions import question_files, question_sets
from retrieval.search import queries
from retrieval.store import manifests, shards
from retrieval.text import chunks as chunks_lib
from retro_jax.data import folder as retro_data
from retro_jax.trained import loading

KIND = 'chunk_examples'
_CHUNKS = 64  # neighboring chunks that are searched together
_SHARD = 16  # of such rows


def of_questions(
  config: config_lib.Config, folder: pathlib.Path, name: str
) -> dpr.Examples:
  """Return the examples of a field of config.questions, 'train' or 'dev'.

  Args:
    folder: folder of the stores of examples.
  """
  settings = config.examples
  questions = question_sets.of_field(config.questions, name)
  reader = trained_reader.open_reader(settings.run, config.data_dir)
  rules = qa_config.MineConfig(
    rule=settings.rule,
    depth=settings.depth * len(settings.retrievers),
    num_hard_negatives=settings.num_kept,
  )
  retriever = mining.Interleaved(reader, settings.retrievers)
  mined = mining.mine(folder, questions, reader.data, rules, retriever)
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
    'max_chunks': settings.max_chunks,
    'seed': config.seed,
    'num_kept': settings.num_kept,
  }
  path = folder / manifests.fingerprint(fields)[:16]
  rows = _chosen_rows(chunks, settings.max_chunks, config.seed)
  parts = [rows[i : i + _SHARD] for i in range(0, len(rows), _SHARD)]

  def find(i, unused_progress):
    ranked = [_ranked(chunks, source, settings, *row) for row in parts[i]]
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
  chunks, source, settings, shard: int, rows: slice
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return the chunks [b], their positives [b] and their negatives [b, N]."""
  asked = queries.ChunkQueries(chunks, chunks.ids(shard, rows))
  ids, scores = source.search(asked, settings.depth)
  lower = scores < scores[:, :1]
  negatives = mining.first_where(ids, lower, settings.num_kept)
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
