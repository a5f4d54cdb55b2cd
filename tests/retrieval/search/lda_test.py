# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Topics against variational inference in numpy, their search, and their stores."""

import sys
from unittest import mock

import numpy as np
import pytest
import scipy.special

from retrieval.search import bm25, lda
from retrieval.text import passages as passages_lib

SUBJECTS = ('river lake sea boat fish', 'king queen crown war treaty')


@pytest.fixture(scope='module')
def texts():
  """Texts of one subject each; the last one has no known word."""
  rng = np.random.default_rng(0)
  drawn = [' '.join(rng.choice(SUBJECTS[i % 2].split(), 12)) for i in range(59)]
  return [*drawn, 'the zebra']


def _fit(path, texts, progress=None):
  with mock.patch.dict(lda.SETTINGS, passes=4, batch_size=16):
    return lda.fit(path, passages_lib.TextList(texts), 4, progress)


@pytest.fixture(scope='module')
def model(texts, tmp_path_factory):
  return _fit(tmp_path_factory.mktemp('lda') / 'model', texts)


def _slow(topics, counts, num_steps=100):
  """Topic distribution of a text by coordinate ascent (Blei et al. 2003)."""
  psi, prior = scipy.special.psi, 1 / len(topics)
  beta = np.exp(psi(topics) - psi(topics.sum(1, keepdims=True)))
  gamma = np.ones(len(topics))
  for _ in range(num_steps):
    theta = np.exp(psi(gamma) - psi(gamma.sum()))
    share = theta[:, None] * beta / (theta @ beta)
    gamma = prior + share @ counts
  return gamma / gamma.sum()


def test_topics_of_a_text_equal_inference_in_numpy(model, texts):
  topics = model._model.components_.astype(np.float64)
  words = sorted(model._counter.vocabulary, key=model._counter.vocabulary.get)
  found = model.embed_texts([*texts[:3], 'zebra', ''])
  for row, text in zip(found[:3], texts[:3], strict=True):
    counts = np.array([text.split().count(word) for word in words])
    np.testing.assert_allclose(row**2, _slow(topics, counts), atol=2e-3)
  assert found.dtype == np.float32 and not found[3:].any()


def test_texts_of_one_subject_are_alike(model, texts):
  vectors = model.embed_texts(texts)
  searcher = lda.TopicSearch(vectors)
  ids, scores = searcher.search(vectors[:59], 10)
  assert (ids % 2 == np.arange(59)[:, None] % 2).mean() > 0.95
  assert (scores <= 1 + 1e-6).all() and (scores[:, 0] > 0.999).all()
  ids, scores = searcher.search(vectors[[3, 59]], 60)
  assert 59 not in ids and (ids[1] == -1).all()
  assert (np.isneginf(scores) == (ids < 0)).all()


def test_a_model_is_fitted_once(model, texts, tmp_path, monkeypatch):
  steps = []
  found = _fit(tmp_path / 'x', texts, progress=lambda *x: steps.append(x))
  assert steps[-1] == (4 * 60, 4 * 60)
  assert found.fingerprint == model.fingerprint
  monkeypatch.setattr(lda, '_fit', None)
  again = _fit(tmp_path / 'x', texts)
  np.testing.assert_equal(again.embed_texts(texts), model.embed_texts(texts))
  monkeypatch.setattr(bm25, 'TERMS', 'other')
  with pytest.raises(ValueError, match='terms'):
    _fit(tmp_path / 'x', texts)


def test_words_are_chosen_by_the_texts_that_have_them():
  texts = ['b b c d', 'b c a', 'e b c', 'd x', '7 x']
  with mock.patch.dict(lda.SETTINGS, min_texts=2, max_words=2):
    assert lda._choose_words([texts[:3], texts[3:]]) == ['d', 'x']


def test_bad_input_is_refused(texts, tmp_path, monkeypatch):
  with pytest.raises(ValueError, match='No word of 4 texts'):
    _fit(tmp_path / 'x', texts[:4])
  monkeypatch.setitem(sys.modules, 'sklearn.feature_extraction.text', None)
  with pytest.raises(ImportError, match=r'\[lda\]'):
    _fit(tmp_path / 'x', texts)
