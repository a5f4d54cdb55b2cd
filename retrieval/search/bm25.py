# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BM25 over texts: the baseline of every trained retriever.

Robertson's BM25 in Lucene's form: the sum over a question's words of idf * tf /
(tf + k1 * (1 - b + b * length / mean length)), idf = ln(1 + (N - n + .5) / (n +
.5)), for n of N texts with the word.
"""

import dataclasses
import functools
import re
from typing import Any, ClassVar
import unicodedata

import numpy as np

from retrieval import settings
from retrieval.search import sparse_index

# Lucene's list for English.
STOP_WORDS = tuple(
  'a an and are as at be but by for if in into is it no not of on or such that '
  'the their then there these they this to was will with'.split()
)
_WORD = re.compile(r'\w+')


@dataclasses.dataclass(frozen=True)
class Bm25Config:
  """A `sparse_index.Scheme`; the defaults are Anserini's for passages."""

  # saturation of repeated words; a larger value saturates later
  k1: settings.NotNegative = 0.9
  b: settings.Share = 0.4  # penalty of long blocks
  stop_words: tuple[str, ...] = STOP_WORDS  # ignored words in lower case

  num_buckets: ClassVar[int] = 0
  __post_init__ = settings.check

  def fields(self) -> dict[str, Any]:
    """See `sparse_index.Scheme`."""
    return {'terms': 'words', 'stop_words': list(self.stop_words)}

  def terms(self, text: str) -> list[str]:
    """Return the words of a text without stop words."""
    return [word for word in words_of(text) if word not in self._skipped]

  @functools.cached_property
  def _skipped(self) -> frozenset[str]:
    return frozenset(self.stop_words)

  def query_weights(
    self, counts: np.ndarray, frequencies: np.ndarray, num_texts: int
  ) -> np.ndarray:
    """See `sparse_index.Scheme`; repeated words count twice."""
    without = num_texts - frequencies
    return counts * np.log1p((without + 0.5) / (frequencies + 0.5))

  def text_weights(
    self, counts: np.ndarray, lengths: np.ndarray, mean_length: float
  ) -> np.ndarray:
    """See `sparse_index.Scheme`."""
    counts = counts.astype(np.float32)
    by_length = np.float32(self.k1 * self.b / mean_length) * lengths
    always = np.float32(self.k1 * (1 - self.b))
    return counts / (counts + (always + by_length.astype(np.float32)))


class Bm25(sparse_index.SparseIndex):
  """An index from words to texts."""

  CONFIG, unit = Bm25Config, 'BM25'


def words_of(text: str) -> list[str]:
  """Return words in lower case; a composed letter equals its parts."""
  return _WORD.findall(unicodedata.normalize('NFKC', text).lower())
