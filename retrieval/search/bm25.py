# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BM25 over texts: the baseline of every trained retriever.

Robertson's BM25 in Lucene's form: the sum over a question's words of idf * tf /
(tf + k1 * (1 - b + b * length / mean length)), idf = ln(1 + (N - n + .5) / (n +
.5)), for n of N texts with the word.

Scripts that set no blanks between words become overlapping pairs of letters, as by
Lucene's CJK analyzer (Hangul, too, whose words take endings): Han, kana, Hangul, Thai,
Lao, Khmer, Myanmar. A letter is counted with its vowel signs and tones, and stays
single where it stands alone.
"""

import itertools
import re
import unicodedata

import numpy as np

from retrieval.search import sparse_index

TERMS = 'words; pairs of letters in scripts without blanks'
K1 = 0.9  # saturation of repeated words; a larger value saturates later
B = 0.4  # penalty of long texts
# Lucene's list for English.
STOP_WORDS = (
  'a an and are as at be but by for if in into is it no not of on or such that '
  'the their then there these they this to was will with'
).split()
_STOP_WORDS = frozenset(STOP_WORDS)
_WORD = re.compile(r'\w+')
# Letters of the scripts without blanks, and the signs that follow one.
_LETTER = (
  '\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3400-\u4dbf\u4e00-\u9fff'
  '\uf900-\ufaff\U00020000-\U000323af'  # Han
  '\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff'
  '\U0001aff0-\U0001b16f'  # kana
  '\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb'  # Hangul
  '\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46'  # Thai
  '\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd\u0ec0-\u0ec6\u0edc-\u0edf'  # Lao
  '\u1780-\u17b3\u17d7\u17dc'  # Khmer
  '\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066'
  '\u106e-\u1070\u1075-\u1081\u108e\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe'
  '\uaa60-\uaa76\uaa7a\uaa7e\uaa7f'  # Myanmar
)
_SIGN = (
  '\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece'
  '\u17b4-\u17d3\u17dd\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064'
  '\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\ua9e5'
  '\uaa7b-\uaa7d\u3099\u309a'
)
_UNIT = re.compile(f'[{_LETTER}][{_SIGN}]*')
_RUN = re.compile(rf'(?:{_UNIT.pattern})+|[^\W{_LETTER}]+')


class Bm25(sparse_index.SparseIndex):
  """An index from words to texts, with Anserini's settings for passages."""

  unit = 'BM25'
  fields = {'terms': TERMS, 'stop_words': STOP_WORDS}
  settings = {'k1': K1, 'b': B, 'stop_words': STOP_WORDS}

  @staticmethod
  def terms(text: str) -> list[str]:
    """Return the terms of a text without stop words."""
    return [*itertools.filterfalse(_STOP_WORDS.__contains__, words_of(text))]

  @staticmethod
  def query_weights(counts, frequencies, num_texts) -> np.ndarray:
    """See `SparseIndex`; repeated words count twice."""
    without = num_texts - frequencies
    return counts * np.log1p((without + 0.5) / (frequencies + 0.5))

  @staticmethod
  def text_weights(counts, lengths, mean_length) -> np.ndarray:
    """See `SparseIndex`."""
    counts = counts.astype(np.float32)
    by_length = np.float32(K1 * B / mean_length) * lengths
    always = np.float32(K1 * (1 - B))
    return counts / (counts + (always + by_length.astype(np.float32)))


def words_of(text: str) -> list[str]:
  """Return words, or pairs of letters, in lower case.

  A composed letter equals its parts.
  """
  text = unicodedata.normalize('NFKC', text).lower()
  if text.isascii() or not _UNIT.search(text):
    return _WORD.findall(text)
  words = []
  for run in _RUN.findall(text):
    units = _UNIT.findall(run)
    words += map(''.join, itertools.pairwise(units)) if units[1:] else [run]
  return words


def sets_no_blanks(text: str) -> bool:
  """Whether most letters of a text are of scripts without blanks between words."""
  letters = len(_UNIT.findall(unicodedata.normalize('NFKC', text)))
  return 2 * letters > sum(map(str.isalpha, text))
