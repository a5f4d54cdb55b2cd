# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TF-IDF against its formula, and its files."""

import collections
import math

import numpy as np
import pytest

from retrieval.search import bm25, tfidf
from tests.retrieval.search import sparse_index_test

TEXTS = [
  'The mill stood in the river; the mill burned.',
  'A river queen in the moon.',
  'Moon moon moon river queen',
  '',
  'Stone bridges',
  'Mill stones and bridges of the town',
]


def _terms(text):
  words = bm25.words_of(text)
  stop = set(bm25.STOP_WORDS)
  found = [(w,) for w in words if w not in stop]
  pairs = zip(words, words[1:], strict=False)
  return collections.Counter(found + [p for p in pairs if not stop & {*p}])


def _expected(query):
  """The scores of all texts by the formula, without hashing."""
  rows = [_terms(text) for text in TEXTS]
  scores = np.zeros(len(TEXTS))
  for term, count in _terms(query).items():
    n = sum(term in row for row in rows)
    idf = max(math.log((len(TEXTS) - n + 0.5) / (n + 0.5)), 0)
    for i, row in enumerate(rows):
      scores[i] += math.log1p(count) * idf * math.log1p(row[term]) * idf
  return scores


@pytest.mark.parametrize(
  'query',
  [
    'river queen',
    'queen in the moon',
    'mill mill of stones',
    'moon',
    'the of',
    'nowhere',
  ],
)
def test_scores_are_those_of_the_formula(query):
  ids, scores = sparse_index_test.in_memory(tfidf.TfIdf, TEXTS).search(
    [query], len(TEXTS)
  )
  wanted = _expected(query)
  order = np.argsort(-wanted, kind='stable')
  order = order[wanted[order] > 0]
  assert ids[0, : len(order)].tolist() == order.tolist()
  np.testing.assert_allclose(scores[0, : len(order)], wanted[order], rtol=1e-5)
  assert (ids[0, len(order) :] == -1).all()
  assert np.isneginf(scores[0, len(order) :]).all()
