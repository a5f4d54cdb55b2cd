# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ScaNN and USearch agree with exact search, and are saved whole."""

import shutil

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import index_config, published_index as index_lib
from retrieval.searchers import subset
from tests.retrieval.searchers import clusters

KINDS = {
  'scann': (searchers.ScannSearcher, searchers.scann_available()),
  'usearch': (searchers.UsearchSearcher, searchers.usearch_available()),
}


@pytest.fixture(scope='module', params=['dot_product', 'squared_l2'])
def metric(request):
  return request.param


@pytest.fixture(scope='module', params=KINDS)
def built(request, metric):
  kind, is_available = KINDS[request.param]
  if not is_available:
    pytest.skip(f'{request.param} is not installed.')
  vectors = clusters.clustered()
  return kind.build(vectors, metric), vectors


def test_agrees_with_exact_search(built):
  searcher, vectors = built
  exact = searchers.ExactSearcher(vectors, searcher.metric)
  queries = vectors[:200] + np.float32(0.1)
  ids, scores = searcher.search(queries, 10)
  want_ids, want_scores = exact.search(queries, 10)
  same = (ids[:, :, None] == want_ids[:, None]).any(1)
  assert ids.dtype == np.int64 and scores.dtype == np.float32
  assert same.mean() > 0.95
  # Rescored in float32: the scores are those of exact search, and fall.
  np.testing.assert_allclose(
    scores, exact.score(queries, ids), rtol=1e-4, atol=1e-4
  )
  assert (np.diff(scores) <= 0).all()
  # Rank by rank nothing beats the exact answer; builds differ in the rest.
  assert (scores <= want_scores + 1e-4).all()


def test_one_query_and_none(built):
  searcher, vectors = built
  one, _ = searcher.search(vectors[:1], 3)
  many, _ = searcher.search(vectors[:2], 3)
  assert one.shape == (1, 3) and (one == many[:1]).all()
  assert searcher.search(vectors[:0], 3)[0].shape == (0, 3)


def test_k_beyond_the_database_is_masked(built):
  of_many, vectors = built
  searcher = of_many.build(vectors[:20], of_many.metric)
  ids, scores = searcher.search(vectors[:3], 25)
  assert (ids[:, -5:] == -1).all() and np.isneginf(scores[:, -5:]).all()
  assert (np.sort(ids[:, :-5]) == np.arange(20)).all()


def test_saved_moved_and_loaded_answers_the_same(built, tmp_path):
  searcher, vectors = built
  want = searcher.search(vectors[:50], 10)
  searcher.save(tmp_path / 'a')
  assert not list((tmp_path / 'a').glob('*.pkl'))
  for file in (tmp_path / 'a').iterdir():
    assert str(tmp_path).encode() not in file.read_bytes()
  shutil.move(tmp_path / 'a', tmp_path / 'b')
  again = searchers.load(tmp_path / 'b')
  assert (again.metric, again.num_vectors) == (searcher.metric, 5000)
  np.testing.assert_equal(again.search(vectors[:50], 10), want)


def test_truncated_and_missing_files(built, tmp_path):
  searcher, _ = built
  searcher.save(tmp_path / 'whole')
  names = [f.name for f in (tmp_path / 'whole').iterdir()]
  for name in names:
    for cut in (True, False):
      folder = tmp_path / f'{name}-{cut}'
      shutil.copytree(tmp_path / 'whole', folder)
      if cut:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
      else:
        (folder / name).unlink()
      with pytest.raises((ValueError, FileNotFoundError), match=name):
        searchers.load(folder)


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('num_queries', [1, 2])
@pytest.mark.parametrize(
  'metric', ['dot_product', 'squared_l2'], scope='function'
)
@pytest.mark.skipif(
  not searchers.usearch_available(), reason='USearch is not installed.'
)
def test_rows_that_a_graph_does_not_reach_are_searched(
  metric, num_queries, monkeypatch
):
  vectors = np.random.default_rng(0).standard_normal((9000, 24), np.float32)
  searcher = searchers.UsearchSearcher.build(vectors, metric)
  search_graph = searcher._search_graph

  def reach_fewer(queries, k):
    ids, scores = search_graph(queries, k)
    missed = ids < 9  # some rows are missed anyhow, in most builds
    order = np.argsort(missed, axis=1, kind='stable')
    ids, scores = np.where(missed, -1, ids), np.where(missed, -np.inf, scores)
    return (np.take_along_axis(x, order, 1) for x in (ids, scores))

  monkeypatch.setattr(searcher, '_search_graph', reach_fewer)
  reached, _ = reach_fewer(vectors[:num_queries], 9000)
  missed = np.setdiff1d(np.arange(9000), reached)
  ids, scores = searcher.search(vectors[:num_queries], 9000)
  assert len(missed) >= 9 and (np.sort(ids) == np.arange(9000)).all()
  assert np.isfinite(scores).all() and (np.diff(scores) <= 0).all()
  mask = np.zeros(9000, bool)
  mask[missed] = True
  ids, _ = searcher.search(
    vectors[:num_queries], len(missed) + 1, subset.Subset(mask)
  )
  assert (np.sort(ids) == [-1, *missed]).all()


@pytest.mark.parametrize('shards', [1, 2])
@pytest.mark.skipif(
  not searchers.usearch_available(), reason='USearch is not installed.'
)
def test_an_index_of_usearch_is_published_and_measured(tmp_path, shards):
  vectors = clusters.clustered(4200 * shards)
  config = index_config.IndexConfig(searcher='usearch', shards=shards)
  built = index_lib.build_index(
    tmp_path / 'i', vectors, vectors_fingerprint='x', config=config
  )
  assert built.report['recall@10'] >= 0.95
  ids, _ = index_lib.open_index(tmp_path / 'i').searcher.search(vectors[:50], 1)
  assert (ids[:, 0] == np.arange(50)).mean() > 0.8  # a graph may miss a vector
