# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The retrieval layer: text, tokens, vectors, indexes and neighbors.

  index = retrieval.open_index('runs/quickstart/data')
  found = index.search(['Who discovered penicillin?'], k=5)
  found.ids, found.scores, found.titles, found.texts

  for document in retrieval.open_corpus('documents.jsonl'):
    print(document.title)

  searcher = retrieval.ExactSearcher(vectors)        # [n, d] float32
  ids, scores = searcher.search(queries, k=10)       # [b, d] -> [b, 10] each

Names load on first use. Importing the package starts no backend.
"""

import importlib

_PLACES = {
  'BM25': ('search.bm25', 'Bm25'),
  'Embedder': ('nn.embedders', 'Embedder'),
  'ExactSearcher': ('searchers.exact', 'ExactSearcher'),
  'IndexConfig': ('index.index', 'IndexConfig'),
  'QuestionSet': ('questions.question_sets', 'QuestionSet'),
  'Retriever': ('search.retriever', 'Retriever'),
  'ScannConfig': ('searchers.scann', 'ScannConfig'),
  'ScannSearcher': ('searchers.scann', 'ScannSearcher'),
  'SearchResult': ('index.text_index', 'SearchResult'),
  'TextIndex': ('index.text_index', 'TextIndex'),
  'build_index': ('index.index', 'build_index'),
  'exact_match': ('questions.qa_metrics', 'exact_match'),
  'f1': ('questions.qa_metrics', 'f1'),
  'has_answer': ('questions.answers', 'has_answer'),
  'load_question_set': ('questions.question_sets', 'load'),
  'load_searcher': ('searchers', 'load'),
  'load_tokenizer': ('tokenization', 'load_tokenizer'),
  'open_corpus': ('text.corpus', 'open_corpus'),
  'open_index': ('index.text_index', 'open_index'),
}
__all__ = list(_PLACES)


def __getattr__(name: str):
  if name not in _PLACES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  module, attribute = _PLACES[name]
  found = getattr(importlib.import_module(f'{__name__}.{module}'), attribute)
  globals()[name] = found
  return found


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
