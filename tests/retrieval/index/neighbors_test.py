# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors on a tiny corpus, against slow loops."""

import tracemalloc

import numpy as np
import pytest

from retrieval import searchers
from retrieval.nn import embedders
from retrieval.search import exclude
from tests.retrieval.store import tiny_stores


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  return tiny_stores.make(root, np.random.default_rng(0))


class LetterEmbedder(embedders.Embedder):
  """Counts of letters: a deterministic stand-in with the same interface."""

  dimension = 16

  def __init__(self):
    self.fingerprint = 'letters'

  def embed_texts(self, texts, progress=None):
    vectors = np.zeros((len(texts), self.dimension), np.float32)
    for row, text in zip(vectors, texts, strict=True):
      for byte in text.encode():
        row[byte % self.dimension] += 1
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1)[:, None]

  embed_queries = embed_texts


def test_short_rows_are_searched_again_exactly(data):
  """An index that only ever finds the query's own document loses nothing."""
  chunks = data.chunks['train']
  queries = LetterEmbedder().embed_texts(chunks.texts(np.arange(len(chunks))))
  everything = np.arange(chunks.num_chunks)
  owner = chunks.document_hashes(everything)

  class OwnOnly(searchers.Searcher):
    num_vectors, metric = chunks.num_chunks, 'squared_l2'
    unit = 'nothing'

    def search(self, queries, k, subset=None):
      ids = np.full((len(queries), k), -1)
      for row, query in zip(ids, self.own, strict=True):
        mine = everything[owner == query][:k]
        row[: len(mine)] = mine
      return ids, np.where(ids >= 0, 0.0, -np.inf).astype(np.float32)

  approximate = OwnOnly()
  approximate.own = owner
  exact = searchers.ExactSearcher(queries, 'squared_l2')
  search = exclude.OtherDocuments(approximate, lambda: exact, chunks.id_hash, 2)
  ids, scores = search.search(queries, owner)
  assert (ids >= 0).all()
  assert (chunks.document_hashes(ids) != owner[:, None]).all()
  for query, own, found in zip(queries, owner, scores, strict=True):
    distances = ((queries - query) ** 2).sum(1)[owner != own]
    np.testing.assert_allclose(-found, np.sort(distances)[:2], atol=1e-5)


def test_counting_chunks_takes_memory_for_documents_only():
  rng = np.random.default_rng(0)
  documents = rng.integers(0, 1 << 63, (20, 20), dtype=np.uint64)
  tracemalloc.start()
  shards = (np.repeat(part, 1000) for part in documents)
  hashes, counts = exclude._count_by_document(shards)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 8 * counts.sum() / 2
  np.testing.assert_array_equal(hashes, np.unique(documents))
  assert (counts == 1000).all()
