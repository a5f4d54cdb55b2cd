# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BM25 against its formula and against bm25s, and what it does at the edges."""

import collections
import math
import re
import unicodedata

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from retrieval.search import bm25, tfidf
from tests.retrieval.search import sparse_index_test


def formula(texts, query):
  """[N] float64 scores, word by word."""
  split = [
    [w for w in text.lower().split() if w not in bm25.STOP_WORDS]
    for text in texts
  ]
  mean = sum(map(len, split)) / len(split)
  scores = []
  for block in split:
    score, counts = 0.0, collections.Counter(block)
    for word in query.lower().split():
      n = sum(word in other for other in split)
      idf = math.log(1 + (len(split) - n + 0.5) / (n + 0.5))
      length = 1 - bm25.B + bm25.B * len(block) / mean
      tf = counts[word]
      score += idf * tf / (tf + bm25.K1 * length) if tf else 0.0
    scores.append(score)
  return np.array(scores)


def test_equals_the_formula_with_ties_by_lower_id():
  texts = sparse_index_test._random_texts(150)[:150]
  index = sparse_index_test.in_memory(bm25.Bm25, texts)
  queries = ['river river apple', 'the x', '\u00fcnder 7 queen', '\u65e5\u672c']
  for k in (1, 7, 200):
    ids, scores = index.search(queries, k)
    assert ids.shape == scores.shape == (4, k)
    assert ids.dtype == np.int64 and scores.dtype == np.float32
    for row, query in enumerate(queries):
      exact = formula(texts, query)
      # Rounded, so that float64 tells no blocks apart that float32 cannot.
      order = np.lexsort((np.arange(150), -np.round(exact, 5)))
      order = order[exact[order] > 0][:k]
      np.testing.assert_array_equal(ids[row, : len(order)], order)
      found = scores[row, : len(order)]
      np.testing.assert_allclose(found, exact[order], rtol=1e-5)
      assert (ids[row, len(order) :] == -1).all()
      assert np.isneginf(scores[row, len(order) :]).all()


LANGUAGES = [
  'Lindby harbour. The harbour of Lindby was dug in 1903.',
  '東京 日本の首都は東京です。人口は約千四百万人。',
  'القاهرة عاصمة مصر هي القاهرة.',
  '🎉 Party 🎉🎉 at 5 👩‍👩‍👧‍👦.',
  'ירושלים בירת ישראל היא ירושלים.',
  'กรุงเทพ กรุงเทพเป็นเมืองหลวงของไทย',
  '서울은 한국의 수도이다.',
  'भारत की राजधानी दिल्ली है।',
  'Москва — столица России.',
]


@pytest.mark.parametrize('index_of', [bm25.Bm25, tfidf.TfIdf])
@pytest.mark.parametrize(
  ('question', 'wanted'),
  [
    ('日本の首都はどこですか?', 1),
    ('人口', 1),
    ('เมืองหลวงของไทยคืออะไร', 5),
    ('한국의 수도는 어디입니까?', 6),
    ('Who dug the harbour?', 0),
    ('столица России', 8),
  ],
)
def test_scripts_without_blanks_are_found(index_of, question, wanted):
  ids, _ = sparse_index_test.in_memory(index_of, LANGUAGES).search(
    [question], 1
  )
  assert ids.tolist() == [[wanted]]


@pytest.mark.parametrize(
  ('text', 'terms'),
  [
    ('日本の首都', '日本 本の の首 首都'),
    ('東、京都 A東', '東 京都 a 東'),
    ('iPhone15を買う', 'iphone15 を買 買う'),
    ('ﾄｳｷｮｳ', 'トウ ウキ キョ ョウ'),
    ('データ', 'デー ータ'),
    ('ที่นี่๑๒', 'ที่นี่ ๑๒'),
    ('ກຳລັງ', 'ກໍາ າລັ ລັງ'),
    ('ខ្មែរ។', 'ខ្មែ មែរ'),
    ('မြန်မာ။', 'မြန် န်မာ'),
    ('수도는 서', '수도 도는 서'),
    ('𠮷野家', '𠮷野 野家'),
  ],
)
def test_pairs_of_letters(text, terms):
  assert bm25.words_of(text) == terms.split()


@hypothesis.given(st.text(st.characters(max_codepoint=0xE00), max_size=40))
@hypothesis.settings(max_examples=200, deadline=None)
def test_terms_of_other_scripts_are_words(text):
  wanted = re.findall(r'\w+', unicodedata.normalize('NFKC', text).lower())
  assert bm25.words_of(text) == wanted
  mixed = bm25.words_of(f'日本 {text} กา')
  assert mixed == ['日本', *wanted, 'กา']


def test_scripts_are_told_apart():
  for text in ('日本の首都は?', 'กรุงเทพ BTS', '수도는?'):
    assert bm25.sets_no_blanks(text)
  for text in ('', '?', 'Who wrote 源氏物語?', 'عاصمة مصر', 'столица'):
    assert not bm25.sets_no_blanks(text)
