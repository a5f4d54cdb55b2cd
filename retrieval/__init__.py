# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The retrieval layer: text, tokens, vectors, indexes and neighbors.

  index = retrieval.open_index('runs/quickstart/data')
  result = index.search(['Who discovered penicillin?'], k=5)
  result.ids, result.scores, result.titles, result.texts

  for document in retrieval.open_corpus('documents.jsonl'):
    print(document.title)

  searcher = retrieval.ExactSearcher(vectors)        # [n, d] float32
  ids, scores = searcher.search(queries, k=10)       # [b, d] -> [b, 10] each

Names load on first use. Importing the package starts no backend.
"""

from retrieval import lazy

_PLACES = {
  'BM25': '.search.bm25:Bm25',
  'Embedder': '.nn.embedders',
  'ExactSearcher': '.searchers.exact',
  'IndexConfig': '.index.published_index',
  'QuestionSet': '.questions.question_sets',
  'Retriever': '.search.retriever',
  'ScannConfig': '.searchers.scann',
  'ScannSearcher': '.searchers.scann',
  'SearchResult': '.index.text_index',
  'TextIndex': '.index.text_index',
  'build_index': '.index.published_index',
  'exact_match': '.questions.qa_metrics',
  'f1': '.questions.qa_metrics',
  'load_question_set': '.questions.question_sets:load',
  'load_searcher': '.searchers:load',
  'load_tokenizer': '.tokenization',
  'open_corpus': '.text.corpus',
  'open_index': '.index.joined_index',
}
__all__ = list(_PLACES)
__getattr__, __dir__ = lazy.attach(__name__, _PLACES)
