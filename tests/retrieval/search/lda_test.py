# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Topics against variational inference in numpy, their search, and their stores."""

import sys

import numpy as np
import pytest
import scipy.special

from retrieval.search import lda

CONFIG = lda.LdaConfig(num_topics=4, passes=4, batch_size=16)
SUBJECTS = ('river lake sea boat fish', 'king queen crown war treaty')


@pytest.fixture(scope='module')
def texts():
  """Texts of one subject each; the last one has no known word."""
  rng = np.random.default_rng(0)
  drawn = [' '.join(rng.choice(SUBJECTS[i % 2].split(), 12)) for i in range(59)]
  return [*drawn, 'the zebra']


def _build(path, texts, config=CONFIG, **arguments):
  def read(ids):
    return [texts[i] for i in ids]

  return lda.Lda.build(path, read, len(texts), 'made', config, **arguments)


@pytest.fixture(scope='module')
def root(texts, tmp_path_factory):
  root = tmp_path_factory.mktemp('lda')
  _build(root / 'x', texts)
  return root


@pytest.fixture(scope='module')
def index(root):
  return lda.Lda.load(root / 'x')


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


def test_topics_of_a_text_equal_inference_in_numpy():
  rng, words = np.random.default_rng(0), [*'abcdefg']
  topics = rng.gamma(1.0, 3.0, (4, len(words))).astype(np.float32)
  model = lda.Topics(words, topics)
  texts = [' '.join(rng.choice(words, n)) for n in (3, 8, 40)]
  found = model.vectors([*texts, 'q', ''])
  for row, text in zip(found, texts, strict=False):
    counts = np.array([text.split().count(word) for word in words])
    expected = _slow(
      topics.astype(np.float64), counts * (np.array(words) != 'a')
    )
    np.testing.assert_allclose(row**2, expected, atol=2e-3)
  assert found.dtype == np.float32 and not found[3:].any()


def test_search_equals_all_coefficients(index, texts):
  vectors = index._topics.vectors(texts)
  queries = ['a boat on the lake', texts[3], 'zebra', '']
  distributions = index._topics.vectors(queries).astype(np.float64) ** 2
  for k in (3, 70):
    ids, scores = index.search(queries, k)
    assert ids.dtype == np.int64 and scores.dtype == np.float32
    for row, p in enumerate(distributions):
      exact = np.sqrt(p * vectors.astype(np.float64) ** 2).sum(1)
      best = np.sort(exact[exact > 0])[::-1][:k]
      found, there = ids[row, : len(best)], slice(0, len(best))
      np.testing.assert_allclose(scores[row, there], best, atol=1e-6)
      np.testing.assert_allclose(exact[found], best, atol=1e-6)
      assert len({*found.tolist()}) == len(best)
      assert (ids[row, len(best) :] == -1).all()
      assert np.isneginf(scores[row, len(best) :]).all()
  assert index.search([], 2)[0].shape == (0, 2)
  assert 59 not in index.search(queries, 60)[0]


def test_texts_of_one_subject_find_each_other(index, texts):
  ids, scores = index.search(texts[:59], 10)
  assert (ids % 2 == np.arange(59)[:, None] % 2).mean() > 0.95
  assert (scores <= 1 + 1e-6).all() and (scores[:, 0] > 0.999).all()


def test_a_killed_build_goes_on(root, texts, tmp_path, monkeypatch):
  monkeypatch.setattr(lda, '_PER_SHARD', 25)
  steps = []

  def killed(done, total):
    steps.append((done, total))
    if done > 4 * 60 + 25:
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    _build(tmp_path / 'x', texts, progress=killed)
  assert steps[-1] == (4 * 60 + 41, 4 * 60 + 60)
  with pytest.raises(FileNotFoundError, match='no topics store'):
    lda.Lda.load(tmp_path / 'x')
  monkeypatch.setattr(lda, '_fit', None)  # The model is not fitted again.
  found = _build(tmp_path / 'x', texts)
  query = [texts[7]]
  for have, want in zip(
    found.search(query, 9),
    lda.Lda.load(root / 'x').search(query, 9),
    strict=True,
  ):
    np.testing.assert_array_equal(have, want)
  assert found.num_blocks == 60 and found.config == CONFIG


def test_words_are_chosen_by_the_texts_that_have_them():
  texts = ['b b c d', 'b c a', 'e b c', 'd x', '7 x']
  config = lda.LdaConfig(min_texts=2, max_share=0.5, max_words=2)
  batches = [np.arange(3), np.arange(3, 5)]

  def read(ids):
    return [texts[i] for i in ids]

  assert lda._choose_words(read, batches, 5, config) == ['d', 'x']


def test_bad_input_is_refused(root, index, texts, tmp_path, monkeypatch):
  with pytest.raises(ValueError, match='k=0: expected at least 1'):
    index.search(['boat'], 0)
  with pytest.raises(ValueError, match='num_topics=0: expected a whole number'):
    lda.LdaConfig(num_topics=0)
  with pytest.raises(ValueError, match='No word of 60 texts .* min_texts=61'):
    _build(tmp_path / 'x', texts, lda.LdaConfig(min_texts=61))
  with pytest.raises(ValueError, match='made from other data or settings'):
    _build(root / 'x', texts, lda.LdaConfig(num_topics=5))
  _build(tmp_path / 'y', texts, lda.LdaConfig(num_topics=4, passes=1))
  (root / 'y-vectors').symlink_to(root / 'x-vectors')
  (root / 'y-model').symlink_to(tmp_path / 'y-model')
  with pytest.raises(ValueError, match='made by another model than'):
    lda.Lda.load(root / 'y')
  monkeypatch.setitem(sys.modules, 'sklearn.feature_extraction', None)
  with pytest.raises(ImportError, match=r'need scikit-learn: .*\[lda\]'):
    lda.Lda.load(root / 'x')
