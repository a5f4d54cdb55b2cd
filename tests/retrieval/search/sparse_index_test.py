# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sparse indices over shards: equal to one in memory, resumed, refused."""

import numpy as np
import pytest

from retrieval.search import bm25, sparse_index, tfidf
from retrieval.text import passages as passages_lib
from tests.retrieval.store import tiny_stores

INDICES = [bm25.Bm25, tfidf.TfIdf]
QUERIES = ['river river apple', 'the x', 'queen 7', 'moon', '', 'nowhere']
WORDS = 'river queen the apple \u00dcnder \u65e5\u672c x 7'.split()


def _random_texts(count, seed=0):
  """Texts of few words, so that many score alike; some have no word at all."""
  rng = np.random.default_rng(seed)
  return [' '.join(rng.choice(WORDS, n)) for n in rng.integers(0, 9, count)] + [
    'a moon',
    *(' '.join(['moon'] * n) for n in (254, 300, 70_000)),
  ]


def in_memory(kind, texts) -> sparse_index.SparseIndex:
  """Return an index of texts in one shard, which is on no disk."""
  passages = passages_lib.TextList(texts)
  span = range(len(passages))
  shard = sparse_index._make(kind, passages, span)
  made_of = kind.made_of(passages.fingerprint, len(span))
  return kind([shard].__getitem__, [len(span)], made_of)


def _build(index_of, path, texts, **settings):
  return index_of.build_store(
    path, passages_lib.TextList(texts), rows=7, **settings
  )


@pytest.fixture(params=INDICES)
def index_of(request):
  return request.param


def _equal(one, other, k=9):
  pairs = zip(one.search(QUERIES, k), other.search(QUERIES, k), strict=True)
  for have, want in pairs:
    np.testing.assert_array_equal(have, want)


def test_shards_find_what_one_in_memory_finds(index_of, tmp_path, monkeypatch):
  texts = _random_texts(40)
  whole = in_memory(index_of, texts)
  index = _build(index_of, tmp_path / 'i', texts)
  assert len(list((tmp_path / 'i').glob('terms-*.npy'))) == 7
  assert len(index) == len(whole) == 44
  for k in (1, 9, 50):
    _equal(index, whole, k)
  # So do few queries at once, and shards of texts counted one by one.
  monkeypatch.setattr(sparse_index, '_ASKED_TOGETHER', 2)
  monkeypatch.setattr(sparse_index, '_TOGETHER', 1)
  _equal(index, whole)
  again = _build(index_of, tmp_path / 'again', texts)
  assert again.fingerprint == index.fingerprint
  files = map(tiny_stores.file_hashes, (tmp_path / 'i', tmp_path / 'again'))
  assert next(files) == next(files)


def test_the_first_of_all_are_the_best(index_of):
  rng = np.random.default_rng(0)  # many lengths, so that few scores are equal
  lengths = rng.integers(0, 100, 2000)
  index = in_memory(index_of, [' '.join(rng.choice(WORDS, n)) for n in lengths])
  ids, scores = index.search(QUERIES, len(index))
  for k in (1, 9, 31):
    found, values = index.search(QUERIES, k)
    np.testing.assert_array_equal(found, ids[:, :k])
    np.testing.assert_array_equal(values, scores[:, :k])


def test_no_texts_and_texts_without_terms(index_of, tmp_path):
  for name, texts in (('none', []), ('blank', ['', 'the', '...'] * 5)):
    index = _build(index_of, tmp_path / name, texts)
    assert len(index) == len(texts)
    ids, scores = index.search(['the river', ''], 3)
    assert (ids == -1).all() and np.isneginf(scores).all()


def test_other_terms_are_refused(index_of, tmp_path, monkeypatch):
  _build(index_of, tmp_path / 'i', ['river'])
  monkeypatch.setattr(index_of, 'fields', {'terms': 'words', 'stop_words': []})
  with pytest.raises(ValueError, match='made of other terms .stop_words'):
    index_of.load(tmp_path / 'i')
