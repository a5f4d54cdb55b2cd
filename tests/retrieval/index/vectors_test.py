# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of a changed corpus: copied where title and text are the same."""

import hashlib

import numpy as np
import pytest

from retrieval.index import (
  index_versions,
  published_index as index_lib,
  snapshots,
  vectors as vectors_lib,
)
from tests.retrieval.text import tiny_blocks

CONFIG = index_lib.IndexConfig(metric='dot_product', num_queries=5)
PARAMS = {'embedder': {'dense': {'kernel': np.eye(3, dtype=np.float32)}}}


class Embed:
  """A vector that follows from title and text; remembers what it embedded."""

  def __init__(self, blocks):
    self.blocks, self.texts = blocks, []

  def __call__(self, ids, progress=None):
    texts, titles = self.blocks.texts(ids), self.blocks.titles(ids)
    self.texts += texts
    if progress:
      progress(len(ids), len(ids))
    digests = [
      hashlib.blake2b(f'{a}|{b}'.encode(), digest_size=3).digest()
      for a, b in zip(titles, texts, strict=True)
    ]
    vectors = [np.frombuffer(x, np.uint8) for x in digests]
    return np.asarray(vectors, np.float32).reshape(-1, 3) / 256


def _make(root, given, **settings):
  return tiny_blocks.make(
    root, np.random.default_rng(0), given=given, **settings
  ).blocks


def _version(root, blocks, params=PARAMS):
  folder = index_versions.VersionFolder(root)
  name = folder.build(1, params, blocks, Embed(blocks), CONFIG)
  return folder.open(name, blocks)


@pytest.fixture(scope='module')
def documents():
  return tiny_blocks.documents(20, np.random.default_rng(0))


@pytest.fixture(scope='module')
def old(tmp_path_factory, documents):
  root = tmp_path_factory.mktemp('old')
  blocks = _make(root, documents)
  return blocks, _version(root / 'index', blocks)


def _changed(documents):
  """One deleted, one with a longer text, one renamed, one new, all moved."""
  rows = [dict(row) for row in documents[1:]]
  rows[4]['text'] += ' Rome was Paris in 1999.'
  rows[8]['title'] = 'Crown'
  rows.append({'id': 'new', 'title': 'River', 'text': 'The river was Rome.'})
  return rows[::-1]


def _pairs(blocks):
  ids = range(blocks.num_blocks)
  return [*zip(blocks.titles(ids), blocks.texts(ids), strict=True)]


def _known(blocks, version, params=PARAMS):
  made_of = {'blocks': blocks.fingerprint}
  made_of['params'] = snapshots.fingerprint(params)
  return vectors_lib.KnownVectors(blocks, version.stored, made_of)


def test_known_blocks_are_copied_bit_for_bit(old, documents, tmp_path):
  old_blocks, version = old
  blocks = _make(tmp_path, _changed(documents))
  embed, known = Embed(blocks), _known(old_blocks, version)
  vectors = known.fill(blocks, np.arange(blocks.num_blocks), embed)
  rows = {pair: i for i, pair in enumerate(_pairs(old_blocks))}
  old_rows = np.asarray([rows.get(pair, -1) for pair in _pairs(blocks)])
  copied = old_rows >= 0
  np.testing.assert_array_equal(
    vectors[copied], version.vectors[:][old_rows[copied]]
  )
  new = [blocks.texts([i])[0] for i in np.flatnonzero(~copied)]
  assert embed.texts == new and 3 <= len(new) < blocks.num_blocks / 2
  assert (known.num_reused, known.num_embedded) == (copied.sum(), len(new))


def test_copies_and_an_unchanged_corpus_need_no_embedding(tmp_path):
  rows = [{'id': str(i), 'title': 'Mill', 'text': 'Paris.'} for i in range(3)]
  rows.append({'id': 'x', 'title': 'Mill', 'text': 'Rome.'})
  old_blocks = _make(tmp_path / 'old', rows)
  version = _version(tmp_path / 'old' / 'index', old_blocks)
  blocks = _make(tmp_path / 'new', [*rows[::-1], rows[0] | {'id': 'y'}])
  embed, seen = Embed(blocks), []
  vectors = _known(old_blocks, version).fill(
    blocks, np.arange(5), embed, lambda *x: seen.append(x)
  )
  assert embed.texts == [] and seen == [(5, 5)]
  np.testing.assert_array_equal(vectors, Embed(blocks)(np.arange(5)))


def test_vectors_of_others_are_refused(old, documents, tmp_path):
  blocks, version = old
  other = {'embedder': {'dense': {'kernel': 2 * np.eye(3, dtype=np.float32)}}}
  with pytest.raises(ValueError, match='params'):
    _known(blocks, version, other)
  with pytest.raises(ValueError, match='blocks'):
    _known(_make(tmp_path, documents[:9]), version)
