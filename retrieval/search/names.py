# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of the retrievers; `retrievers` makes them.

dense     nearest vectors of an embedder (Borgeaud et al. 2021, section 2.3)
bm25      BM25 over words (Doostmohammadi et al. 2023)
tfidf     DrQA's TF-IDF over words and pairs of words (Chen et al. 2017)
hybrid    reciprocal rank fusion of dense and bm25 (Cormack et al. 2009)
weighted  weighted sums of the normalised scores of dense and bm25 (Ma et al. 2021)
colbert   late interaction of the vectors of tokens (Santhanam et al. 2021)
random    random passages
oracle    candidates of hybrid by the tokens that they share with the text that
          follows the query: an upper bound of re-ranking, unfit for training
"""

from typing import Literal, get_args

Name = Literal[
  'dense',
  'bm25',
  'tfidf',
  'hybrid',
  'weighted',
  'colbert',
  'random',
  'oracle',
]
NAMES = get_args(Name)
FOR_TEXTS = NAMES[:-1]  # retrievers that accept new texts
WITH_VECTORS = ('dense', 'hybrid', 'weighted', 'oracle')
WORDS = ('bm25', 'tfidf')
_WITH_BM25 = ('bm25', 'hybrid', 'weighted', 'oracle')
# retriever -> the index of words that it reads
WORDS_OF = {'tfidf': 'tfidf'} | dict.fromkeys(_WITH_BM25, 'bm25')
