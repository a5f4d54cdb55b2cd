# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A datastore of keys and tokens: written in parts, searched, held apart."""

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import key_values
from retrieval.searchers import recall_check
from retrieval.store import executors, shards
from tests.retrieval.searchers import clusters
from tests.retrieval.store import tiny_stores

D, SHARDS = 16, 3


def _arrays(shard, rows=700):
  rng = np.random.default_rng(shard)
  centers = np.random.default_rng(9).standard_normal((40, D))
  keys = centers[rng.integers(0, 40, rows)] + 0.3 * rng.standard_normal(
    (rows, D)
  )
  return {
    'keys': keys.astype(np.float16),
    'values': rng.integers(0, 50, rows).astype(np.uint16),
    'documents': rng.integers(0, 1 << 60, (4, 2)).astype(np.uint64),
  }


def _make(shard, progress):
  return _arrays(shard)


def _build(path, make=_make, **share):
  shards.build_store(
    path, key_values.KIND, {'made': 'here'}, [700] * SHARDS, make, **share
  )
  return key_values.KeyValueStore(path)


@pytest.fixture(scope='module')
def pairs(tmp_path_factory):
  return _build(tmp_path_factory.mktemp('pairs') / 'datastore')


@pytest.fixture(scope='module')
def queries():
  return np.random.default_rng(5).standard_normal((60, D)).astype(np.float32)


def test_shares_and_a_killed_build_give_the_same_bytes(pairs, tmp_path):
  two = _build(tmp_path / 'two', executor=executors.Processes(2))

  def killed(shard, progress):
    if shard == 1:
      raise KeyboardInterrupt
    return _arrays(shard)

  with pytest.raises(KeyboardInterrupt):
    _build(tmp_path / 'killed', killed)

  def rest(shard, progress):
    assert shard  # The first one is whole.
    return _arrays(shard)

  for other in (two, _build(tmp_path / 'killed', rest)):
    found = tiny_stores.file_hashes(other.path)
    assert found == tiny_stores.file_hashes(pairs.path)


def _slow(pairs, queries, k):
  """Squared distances by loops in float64, nearest first."""
  keys, values = np.asarray(pairs.keys, np.float64), np.asarray(pairs.values)
  distances = np.array(
    [((keys - q.astype(np.float64)) ** 2).sum(1) for q in queries]
  )
  order = np.argsort(distances, axis=1, kind='stable')[:, :k]
  return np.take_along_axis(distances, order, 1), values[order]


def test_exact_search_equals_a_loop(pairs, queries):
  exact = searchers.ExactSearcher(pairs.keys, 'squared_l2')
  search = key_values.KeyValueSearch(pairs, exact)
  distances, values = search.search(queries, 30)
  want, want_values = _slow(pairs, queries, 30)
  np.testing.assert_allclose(distances, want, rtol=1e-6)
  np.testing.assert_array_equal(values, want_values)
  assert distances.dtype == np.float32 and values.dtype == np.uint16
  distances, values = search.search(queries[:2], 2200)
  assert np.isposinf(distances[:, 2100:]).all()
  assert np.isfinite(distances[:, :2100]).all() and not values[:, 2100:].any()


@clusters.NEEDS_SCANN
@pytest.mark.parametrize('rescore', ['int8', 'none'])
def test_quantized_search_gives_exact_distances(pairs, queries, rescore):
  config = searchers.ScannConfig(rescore=rescore, num_leaves_to_search=45)
  scann = searchers.ScannSearcher.build(pairs.keys, 'squared_l2', config)
  ids, rough = scann.search(queries, 50)
  distances, values = key_values.KeyValueSearch(pairs, scann).search(
    queries, 50
  )
  keys = np.asarray(pairs.keys, np.float64)
  want = ((keys[ids] - queries[:, None].astype(np.float64)) ** 2).sum(-1)
  order = np.argsort(want, axis=1, kind='stable')
  np.testing.assert_allclose(
    distances, np.take_along_axis(want, order, 1), rtol=1e-6
  )
  np.testing.assert_array_equal(
    values, np.take_along_axis(np.asarray(pairs.values)[ids], order, 1)
  )
  assert np.abs(-rough - want).max() > 1e-3  # which it would have given alone
  nearest, _ = _slow(pairs, queries, 10)
  assert np.mean(distances[:, :10] <= nearest[:, -1:] * 1.0001) > 0.8


@clusters.NEEDS_SCANN
def test_recall_is_of_what_is_scored_again(pairs):
  """Hashes alone find few of the nearest 10 at once, but most among 200."""
  config = searchers.ScannConfig(
    rescore='none', num_leaves_to_search=45, dimensions_per_block=4
  )
  scann = searchers.ScannSearcher.build(pairs.keys, 'squared_l2', config)
  few, most = (
    key_values.recall(pairs, scann, k=k, at=10, num_queries=30)
    for k in (11, 200)
  )
  assert few < 0.8 < 0.9 < most <= 1
  queries = recall_check.RecallCheck.of(pairs.keys, None, 30, 10).queries
  nearest, _ = _slow(pairs, queries, 11)
  ids, _ = scann.search(queries, 11)
  keys = np.asarray(pairs.keys, np.float64)
  got = ((keys[ids] - queries[:, None].astype(np.float64)) ** 2).sum(-1)
  want = np.mean(np.sort(got, 1)[:, 1:] <= nearest[:, -1:])
  assert few == pytest.approx(want)
  exact = searchers.ExactSearcher(pairs.keys, 'squared_l2')
  assert key_values.recall(pairs, exact, k=10, at=10, num_queries=5) == 1


def test_an_index_of_something_else_is_refused(pairs):
  for vectors, metric in (
    (pairs.keys, 'dot_product'),
    (pairs.keys[:9], 'squared_l2'),
  ):
    searcher = searchers.ExactSearcher(vectors, metric)
    with pytest.raises(ValueError, match='2,100 keys with metric squared_l2'):
      key_values.KeyValueSearch(pairs, searcher)


@pytest.fixture(scope='module')
def tokens(tmp_path_factory):
  root = tmp_path_factory.mktemp('tokens')
  return tiny_stores.make(root, np.random.default_rng(0)).tokens


@pytest.mark.parametrize('column', [0, 1])
def test_a_document_in_the_datastore_is_told(tokens, tmp_path, column):
  """By its id, and by its text under another id."""
  hashes = key_values.document_hashes(tokens, np.arange(40))
  assert len(np.unique(hashes[:, 0])) == 40
  inside = np.array([[1, 2], [3, 4]], np.uint64)
  inside[1, column] = hashes[17, column]

  def read(shard, progress):
    return {**_arrays(shard), 'documents': inside + np.uint64(shard != 1)}

  pairs = _build(tmp_path / 'datastore', read)
  others = np.delete(np.arange(40), 17)
  pairs.check_without(tokens, others)
  with pytest.raises(ValueError, match=r"holds 1 of the 3 doc.*one is 'd17'"):
    pairs.check_without(tokens, np.array([3, 17, 20]))
