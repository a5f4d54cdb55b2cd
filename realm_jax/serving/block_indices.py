# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of the texts of a data folder's blocks: words, topics and vectors of tokens."""

from collections.abc import Sequence
import dataclasses
import functools
import pathlib

from absl import logging
import numpy as np

from realm_jax.data import folder as data_folder
from retrieval.index import reuse
from retrieval.search import (
  bm25,
  colbert_index,
  late_interaction,
  lda,
  sparse_index,
  term_counts,
  tfidf,
  token_store,
)
from retrieval.store import shards, store
from retrieval.text import blocks as blocks_lib

WORDS = {'bm25': bm25.Bm25, 'tfidf': tfidf.TfIdf}


def words_path(data: data_folder.DataFolder, kind: str) -> pathlib.Path:
  """Folder of the index of a folder's blocks by words, 'bm25' or 'tfidf'."""
  return data.root / f'sparse-{kind}-{data.blocks.fingerprint[:12]}'


def word_index(
  data: data_folder.DataFolder,
  kind: str,
  known: term_counts.Known | None = None,
) -> sparse_index.SparseIndex:
  """Return 'bm25' or 'tfidf' over the blocks, built once a folder.

  Args:
    known: terms of blocks of an earlier corpus, which are not analysed again.
  """
  index_of, path = WORDS[kind], words_path(data, kind)
  if path.is_dir():
    return index_of.load(path)
  logging.info('Building %s over %d blocks.', kind, data.blocks.num_blocks)
  return index_of.build_store(path, block_texts(data.blocks), known=known)


def topic_index(data: data_folder.DataFolder, num_topics: int) -> lda.Lda:
  """Return topics over titles and texts of the blocks, built once a folder."""
  blocks = data.blocks
  logging.info('Topics of %d blocks.', blocks.num_blocks)
  return lda.Lda.build(
    data.root / f'lda{num_topics}-{blocks.fingerprint[:12]}',
    functools.partial(titled_texts, blocks),
    blocks.num_blocks,
    blocks.fingerprint,
    lda.LdaConfig(num_topics=num_topics),
  )


def token_index(
  data: data_folder.DataFolder,
  section: colbert_index.Section,
  progress: shards.Progress | None = None,
) -> late_interaction.LateInteraction:
  """Return the index of a ColBERT, built once a folder, model and setting.

  Args:
    progress: called with (blocks done, blocks in all) while it is built.

  Raises:
    FileNotFoundError: if the model is missing.
    ValueError: if the section names no model.
  """
  encoder = colbert_index.load_encoder(section)
  path = _tokens_path(data, encoder, section.made)
  return colbert_index.build(
    path, section, encoder, block_texts(data.blocks), progress=progress
  )


def carry_tokens(
  old: data_folder.DataFolder,
  data: data_folder.DataFolder,
  progress: shards.Progress | None = None,
) -> list[reuse.ReusedCodes]:
  """Build the indices of the ColBERTs that an earlier corpus has, from their codes.

  An index whose model is not where it was, or was trained further, is left out: the
  first search builds it.

  Returns:
    What was copied into each index.
  """
  copied = []
  for path in sorted(old.root.glob('colbert-*')):
    try:
      section = colbert_index.named(colbert_index.Section(), path)
      index = colbert_index.load(path, section)
    except (FileNotFoundError, ValueError) as error:
      logging.warning('%s is not carried over (%s)', path, error)
      continue
    made = token_store.config_of(index.fields)
    if path == _tokens_path(old, index.encoder, made):
      known = reuse.ReusedCodes(index, block_texts(old.blocks))
      colbert_index.build(
        _tokens_path(data, index.encoder, made),
        section,
        index.encoder,
        block_texts(data.blocks),
        known=known,
        progress=progress,
      )
      copied.append(known)
  return copied


def _tokens_path(
  data: data_folder.DataFolder,
  encoder: token_store.Encoder,
  made: token_store.IndexConfig,
) -> pathlib.Path:
  key = [
    encoder.fingerprint,
    data.blocks.fingerprint,
    dataclasses.asdict(made),
  ]
  return data.root / f'colbert-{store.fingerprint(key)[:12]}'


def block_texts(blocks: blocks_lib.BlockStore) -> sparse_index.Texts:
  """Return blocks below their titles, as the texts of an index."""
  return sparse_index.Texts(
    blocks.fingerprint,
    blocks.num_blocks,
    functools.partial(titled_texts, blocks),
    blocks.hashes,
  )


def titled_texts(
  blocks: blocks_lib.BlockStore, ids: Sequence[int] | np.ndarray
) -> list[str]:
  """Return blocks below their titles."""
  return list(sparse_index.titled(blocks.titles(ids), blocks.texts(ids)))
