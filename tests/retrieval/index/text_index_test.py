# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of texts are built once, and again for other passages."""

import os
from unittest import mock

import numpy as np
import pytest

from retrieval.index import text_index
from retrieval.nn import colbert
from retrieval.search import token_store
from tests.retrieval.search import tiny_encoder
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import tiny_blocks


@pytest.fixture
def words(monkeypatch):
  """The model of any folder."""
  found = tiny_encoder.Words()
  monkeypatch.setattr(colbert, 'load', lambda path: found)
  return found


@pytest.fixture(params=['chunks', 'blocks'])
def passages(request, tmp_path):
  root, rng = tmp_path / 'data', np.random.default_rng(0)
  root.mkdir()
  if request.param == 'chunks':
    return tiny_stores.make(root, rng).chunks['train']
  words = [a + b for a in 'abcd' for b in 'efghij']
  rows = [
    {'id': f'd{i}', 'title': 'Mill', 'text': ' '.join(rng.choice(words, 12))}
    for i in range(40)
  ]
  return tiny_blocks.make(root, rng, max_length=64, given=rows).blocks


def _indices(passages, colbert=''):
  root = passages.path.parent
  return text_index.TextIndices(root, passages, colbert=colbert)


def test_an_index_is_built_once(passages, words):
  first = _indices(passages, 'run')
  built = first.words('bm25'), first.tokens()
  text = passages.search_texts(np.arange(3))
  assert words.encoded[-len(passages) :][:3] == text
  words.encoded.clear()
  # Without a name, the model is that of the index.
  again = _indices(passages)
  found = again.words('bm25'), again.tokens()
  assert not words.encoded
  for have, want in zip(found, built, strict=True):
    assert have.fingerprint == want.fingerprint
  assert len(found[0]) == len(found[1]) == len(passages)


def test_indices_of_a_folder_that_is_only_read_are_in_the_cache(
  passages, words, tmp_path, monkeypatch
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  made, root = _indices(passages), passages.path.parent
  built = made.words('tfidf')
  before = sorted(root.rglob('*'))
  monkeypatch.setattr(os, 'access', lambda path, mode: path != root)
  made.words('bm25')
  assert made.words('tfidf').fingerprint == built.fingerprint
  assert sorted(root.rglob('*')) == before
  names = [x.name for x in (tmp_path / 'cache/retrieval').iterdir()]
  assert [x.split('-')[0] for x in names] == ['sparse']


def test_a_missing_model_is_named(passages, words):
  with pytest.raises(ValueError, match="colbert_index.model=''"):
    _indices(passages).tokens()


def test_other_passages_get_the_same_indices(passages, words, tmp_path):
  old = _indices(passages, 'run')
  old.words('tfidf')
  made = old.tokens()
  new = text_index.TextIndices(tmp_path / 'new', passages)
  new.build_those_of(old)
  assert new.words_path('tfidf').is_dir()
  assert new.tokens().fingerprint == made.fingerprint
  words.fingerprint = 'trained further'
  other = text_index.TextIndices(tmp_path / 'other', passages)
  other.build_those_of(old)
  assert not [*other.root.glob('colbert-*')]


def test_indices_of_other_models_and_sizes_are_named(passages, words, caplog):
  made = _indices(passages, 'run').tokens()
  with caplog.at_level('WARNING', 'absl'):
    words.fingerprint = 'another'
    assert _indices(passages, 'other').tokens().path != made.path
    words.fingerprint = 'words'
    with mock.patch.dict(token_store.SETTINGS, {'shard_blocks': 7}):
      with pytest.raises(ValueError, match='has 0 indices'):
        _indices(passages).tokens()
  other, *sizes = caplog.messages
  assert str(made.path) in other and f'{os.sep}run' in other
  assert len(sizes) == 2 and all('shard_blocks' in x for x in sizes)
