# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A search among a subset of rows is a search of an index that holds these alone."""

import jax
import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import published_index as index_lib
from retrieval.searchers import subset as subset_lib
from tests.retrieval.searchers import clusters, sharded_test
from tests.retrieval.store import tiny_stores

METRICS = ('dot_product', 'squared_l2')
SHARES = (0, 0.004, 0.1, 0.6, 1)
vectors, queries = sharded_test.vectors, sharded_test.queries


def _subset(share, num_rows):
  draws = np.random.default_rng(2).random(num_rows)
  return subset_lib.Subset(draws < share)


def _check(found, subset, rows, queries, k, metric):
  """Compare with an exact index of the rows of the subset, bit by bit."""
  alone = searchers.ExactSearcher(rows[subset.rows], metric)
  ids, scores = alone.search(queries, k)
  there = ids >= 0
  ids[there] = subset.rows[ids[there]]
  sharded_test.same(found, (ids, scores))


@pytest.mark.parametrize('metric', METRICS)
@pytest.mark.parametrize(
  ('share', 'on_devices'), [*((x, False) for x in SHARES), (0.1, True)]
)
def test_exact_search(vectors, queries, metric, share, on_devices):
  devices = jax.devices() if on_devices else None
  searcher = searchers.ExactSearcher(vectors, metric, devices=devices)
  subset = _subset(share, len(vectors))
  for k in (1, 40):
    found = searcher.search(queries, k, subset)
    _check(found, subset, vectors, queries, k, metric)


@pytest.mark.parametrize('share', SHARES)
def test_shards_fetch_more_until_enough_are_kept(
  tmp_path, vectors, queries, share
):
  rows = tiny_stores.write_vectors(tmp_path / 'v', vectors)
  config = index_lib.IndexConfig(searcher='exact', shards=4, num_queries=50)
  searcher = index_lib.build_index(
    tmp_path / 'i', rows.array('vectors'), 'v', config
  ).searcher
  subset = _subset(share, len(vectors))
  found = searcher.search(queries, 30, subset)
  _check(found, subset, vectors, queries, 30, searcher.metric)


@clusters.NEEDS_SCANN
def test_scann_finds_k_kept_rows(vectors, queries):
  searcher = searchers.ScannSearcher.build(vectors, 'dot_product')
  for share in SHARES:
    subset = _subset(share, len(vectors))
    ids, scores = searcher.search(queries, 20, subset)
    count = min(20, len(subset.rows))
    assert (ids[:, :count] >= 0).all() and (ids[:, count:] == -1).all()
    assert subset.mask[ids[:, :count]].all()
    assert all(len({*row}) == count for row in ids[:, :count].tolist())
    assert np.isneginf(scores[:, count:]).all()


def test_a_mask_of_another_length_is_refused(vectors, queries):
  searcher = searchers.ExactSearcher(vectors)
  with pytest.raises(ValueError, match='subset'):
    searcher.search(queries, 1, _subset(1, 7))
