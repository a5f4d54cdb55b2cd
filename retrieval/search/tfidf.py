# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""DrQA's TF-IDF over texts: hashed words and pairs of words.

Chen et al. 2017, section 3.1. A term is a word or two adjacent words, neither of them
a stop word, hashed into 2^24 buckets. Its weight in a text is ln(1 + tf) * idf, idf =
ln((N - n + .5) / (n + .5)), 0 for a term of more than half of the texts; the score
is the inner product of question and text. Terms are hashed by XXH3, DrQA's by
MurmurHash3, so that other terms share a bucket.
"""

import numpy as np

from retrieval.search import bm25, sparse_index

_STOP_WORDS = frozenset(bm25.STOP_WORDS)


class TfIdf(sparse_index.SparseIndex):
  """An index from hashed terms to texts."""

  unit, num_buckets = 'TF-IDF', 2**24
  fields = {
    'terms': f'{bm25.TERMS}; pairs of terms',
    'stop_words': sorted(_STOP_WORDS),
  }

  @staticmethod
  def terms(text: str) -> list[str]:
    """Return each word, and each pair of adjacent words."""
    words = bm25.words_of(text)
    counts = [word not in _STOP_WORDS for word in words]
    pairs = zip(words, words[1:], counts, counts[1:], strict=False)
    return [word for word, keep in zip(words, counts, strict=True) if keep] + [
      f'{first} {second}' for first, second, a, b in pairs if a and b
    ]

  @staticmethod
  def query_weights(counts, frequencies, num_texts) -> np.ndarray:
    """See `SparseIndex`; the idf of a text's weight stands here, too."""
    without = num_texts - frequencies
    idf = np.maximum(np.log((without + 0.5) / (frequencies + 0.5)), 0)
    return np.log1p(counts) * idf**2

  @staticmethod
  def text_weights(counts, lengths, mean_length) -> np.ndarray:
    """See `SparseIndex`."""
    del lengths, mean_length
    # One value for each count, so that equal texts have equal scores.
    values = np.log1p(np.arange(counts.max(initial=0) + 1.0, dtype=np.float32))
    return values[counts]
