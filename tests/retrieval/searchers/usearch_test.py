# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The graph of USearch agrees with exact search, and is saved whole."""

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import index, index_config
from tests.retrieval.searchers import clusters

pytest.importorskip('usearch')


@pytest.fixture(scope='module', params=['dot_product', 'squared_l2'])
def built(request):
  vectors = clusters.clustered(4200)
  return searchers.UsearchSearcher.build(vectors, request.param), vectors


def test_agrees_with_exact_search(built):
  searcher, vectors = built
  exact = searchers.ExactSearcher(vectors, searcher.metric)
  queries = vectors[:100] + np.float32(0.1)
  ids, scores = searcher.search(queries, 10)
  want, _ = exact.search(queries, 10)
  assert ids.dtype == np.int64 and scores.dtype == np.float32
  assert (ids[:, :, None] == want[:, None]).any(1).mean() > 0.95
  np.testing.assert_allclose(
    scores, exact.score(queries, ids), rtol=1e-4, atol=1e-4
  )
  assert (np.diff(scores) <= 0).all()


def test_one_query_and_none(built):
  searcher, vectors = built
  one, _ = searcher.search(vectors[:1], 3)
  many, _ = searcher.search(vectors[:2], 3)
  assert one.shape == (1, 3) and (one == many[:1]).all()
  assert searcher.search(vectors[:0], 3)[0].shape == (0, 3)


def test_k_beyond_the_database_is_masked():
  vectors = clusters.clustered(20)
  searcher = searchers.UsearchSearcher.build(vectors, 'squared_l2')
  ids, scores = searcher.search(vectors[:3], 25)
  assert (ids[:, -5:] == -1).all() and np.isneginf(scores[:, -5:]).all()
  assert (np.sort(ids[:, :-5]) == np.arange(20)).all()


def test_saved_moved_and_loaded_answers_the_same(built, tmp_path):
  searcher, vectors = built
  want = searcher.search(vectors[:50], 10)
  searcher.save(tmp_path / 'a')
  (tmp_path / 'a').rename(tmp_path / 'b')
  again = searchers.load(tmp_path / 'b')
  assert again.metric == searcher.metric
  for a, b in zip(again.search(vectors[:50], 10), want, strict=True):
    np.testing.assert_array_equal(a, b)
  file = tmp_path / 'b' / 'graph.usearch'
  file.write_bytes(file.read_bytes()[:-1])
  with pytest.raises(ValueError, match=r'graph\.usearch'):
    searchers.load(tmp_path / 'b')


@pytest.mark.parametrize('shards', [1, 2])
def test_an_index_of_it_is_published_and_measured(tmp_path, shards):
  vectors = clusters.clustered(4200 * shards)
  config = index_config.IndexConfig(searcher='usearch', shards=shards)
  built = index.build_index(
    tmp_path / 'i', vectors, vectors_fingerprint='x', config=config
  )
  assert built.report['recall@10'] >= 0.95
  ids, _ = index.open_index(tmp_path / 'i').searcher.search(vectors[:5], 1)
  assert (ids[:, 0] == np.arange(5)).all()
