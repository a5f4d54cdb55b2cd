# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of the texts of a data folder's blocks, by words and by topics."""

from collections.abc import Sequence
import functools
import pathlib

from absl import logging
import numpy as np

from realm_jax.data import folder as data_folder
from retrieval.text import blocks as blocks_lib
from retrieval.text_search import bm25, lda, sparse_index, term_counts, tfidf

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
  blocks, index_of = data.blocks, WORDS[kind]
  path = words_path(data, kind)
  if path.is_dir():
    return index_of.load(path)
  logging.info('Building %s over %d blocks.', kind, blocks.num_blocks)

  texts = sparse_index.Texts(
    blocks.fingerprint,
    blocks.num_blocks,
    functools.partial(titled_texts, blocks),
    blocks.hashes,
  )
  return index_of.build_store(path, texts, known=known)


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


def titled_texts(
  blocks: blocks_lib.BlockStore, ids: Sequence[int] | np.ndarray
) -> list[str]:
  """Return blocks below their titles."""
  return list(sparse_index.titled(blocks.titles(ids), blocks.texts(ids)))
