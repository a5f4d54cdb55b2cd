# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of the texts of a datastore's chunks, built and carried over."""

from experiments.engine import cluster, progress, stages
from retrieval.index import reuse, sources
from retrieval.search import colbert_index, lda
from retrieval.store import executors
from retro_jax.data import folder as retro_data


def build(config: stages.Config, data: retro_data.DataFolder) -> stages.Rows:
  """Build the indices of texts that the source reads."""
  rows = []
  if data.source in sources.WITH_WORDS:
    kind = data.source if data.source in sources.WORDS else 'bm25'
    rows.append((f'chunks in {kind}', _build_words(config, data, kind)))
  if data.source == 'lda':
    rows.append(('chunks with topics', _build_topics(config, data)))
  if data.source == 'colbert':
    rows.append(('chunks in colbert', _build_colbert(config, data)))
  return rows


def _build_words(config, data, kind: str) -> str:
  with progress.bar(kind, 'chunks') as update:
    words = sources.build_words(
      data.words_path(kind),
      data.chunks('train'),
      data.tokenizer,
      kind,
      executor=cluster.executor(config, data.root),
      progress=update,
    )
  return f'{words.num_blocks:,}'


def _build_topics(config, data) -> str:
  with progress.bar('topics', 'chunks') as update:
    topics = sources.build_topics(
      data.path('topics'),
      data.chunks('train'),
      data.tokenizer,
      lda.LdaConfig(num_topics=config.neighbors.num_topics),
      update,
    )
  return f'{topics.num_blocks:,}'


def _build_colbert(config, data) -> str:
  path = data.path('colbert')
  section = colbert_index.named(colbert_index.section_of(config), path)
  encoder = executors.Lazy(colbert_index.load_encoder, section)
  with progress.bar('colbert', 'chunks') as update:
    index = colbert_index.build(
      path,
      section,
      encoder,
      sources.chunk_texts(data.chunks('train'), data.tokenizer),
      executor=cluster.executor(config, data.root),
      progress=update,
    )
  return f'{index.num_blocks:,}'


def carry_over(
  config: stages.Config,
  old: retro_data.DataFolder,
  data: retro_data.DataFolder,
) -> dict[str, int]:
  """Build the indices of texts that old data have over new data.

  Terms and vectors of tokens of old texts are copied; topics are fitted anew.

  Returns:
    Numbers of chunks that were copied.
  """
  counts, chunks = {}, data.chunks('train')
  for kind, index_of in sources.WORDS.items():
    if old.words_path(kind).exists():
      known = reuse.ReusedTerms(index_of.load(old.words_path(kind)))
      sources.build_words(
        data.words_path(kind), chunks, data.tokenizer, kind, known=known
      )
      counts[f'chunks reused in {kind}'] = known.num_reused
  if old.path('topics-vectors').exists():
    made = lda.Lda.load(old.path('topics')).config
    sources.build_topics(data.path('topics'), chunks, data.tokenizer, made)
  if (path := old.path('colbert')).joinpath('tokens').exists():
    section = colbert_index.named(colbert_index.section_of(config), path)
    index = colbert_index.load(path, section)
    known = reuse.ReusedCodes(
      index, sources.chunk_texts(old.chunks('train'), old.tokenizer)
    )
    with progress.bar('colbert', 'chunks') as shown:
      colbert_index.build(
        data.path('colbert'),
        section,
        index.encoder,
        sources.chunk_texts(chunks, data.tokenizer),
        known=known,
        progress=shown,
      )
    counts['chunks reused in colbert'] = known.num_reused
  return counts
