# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors on a tiny corpus, against slow loops."""

import pathlib
import tracemalloc

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import (
  published_index as index_lib,
  vectors as vectors_lib,
)
from retrieval.nn import embedders
from retrieval.search import exclude
from retrieval.searchers import subset as subset_lib
from retrieval.text import tokens as tokens_lib
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


@pytest.fixture(scope='module')
def vectors(data):
  return {
    split: vectors_lib.build_vector_store(
      data.root / f'vectors-{split}',
      data.chunks[split],
      LetterEmbedder(),
    )
    for split in tokens_lib.SPLITS
  }


def _index(vectors, metric='squared_l2'):
  searcher = searchers.ExactSearcher(vectors.array('vectors'), metric)
  return index_lib.Index(pathlib.Path('index'), searcher, 'exact', '', {})


def test_short_rows_are_searched_again_exactly(data, vectors):
  """An index that only ever finds the query's own document loses nothing."""
  chunks = data.chunks['train']
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
  exact = _index(vectors['train']).searcher
  search = exclude.OtherDocuments(approximate, lambda: exact, chunks.id_hash, 2)
  queries = np.asarray(vectors['train'].array('vectors'))
  ids, scores = search.search(queries, owner)
  assert (ids >= 0).all()
  assert (chunks.document_hashes(ids) != owner[:, None]).all()
  for query, own, found in zip(queries, owner, scores, strict=True):
    distances = ((queries - query) ** 2).sum(1)[owner != own]
    np.testing.assert_allclose(-found, np.sort(distances)[:2], atol=1e-5)


def test_k_larger_than_what_exists_is_padded(data, vectors):
  chunks = data.chunks['valid']
  index = _index(vectors['valid'])
  k = chunks.num_chunks + 5
  search = exclude.OtherDocuments(
    index.searcher, lambda: index.searcher, chunks.id_hash, k
  )
  own = chunks.document_hashes(np.arange(chunks.num_chunks))
  ids, scores = search.search(vectors['valid'].array('vectors')[:], own)
  others = (own[None] != own[:, None]).sum(1)
  np.testing.assert_array_equal((ids >= 0).sum(1), others)
  assert (scores[ids < 0] == -np.inf).all()


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


def test_own_rows_are_excluded_before_the_best_k():
  hashes = np.asarray([7, 8, 9, 7, 5, 6], np.uint64)
  ids = np.asarray([[0, 1, 3, 2, 4], [1, 0, -1, -1, -1], [3, 0, 3, 0, -1]])
  own = np.asarray([7, 99, 7], np.uint64)

  def columns(ids, k):
    columns = exclude.other_columns(ids, hashes[np.maximum(ids, 0)], own, k)
    return subset_lib.take(ids, columns, -2).tolist()

  assert columns(ids, 3) == [[1, 2, 4], [1, 0, -2], [-2] * 3]
  # Fewer were found than are wanted.
  assert columns(ids[:, :1], 2) == [[-2, -2], [1, -2], [-2, -2]]
