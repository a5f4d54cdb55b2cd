# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches over shards against one exact search of the same rows."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import published_index as index_lib
from retrieval.store import cluster_settings
from tests.retrieval.searchers import clusters
from tests.retrieval.store import tiny_stores

METRICS = ('dot_product', 'squared_l2')


@pytest.fixture(scope='module')
def vectors():
  """Rows of which many are equal, in several shards of any partition."""
  rows = clusters.clustered(3000)
  rows[100:140] = rows[3]
  rows[::601] = rows[2]
  rows[2990:] = rows[3]
  return rows


@pytest.fixture(scope='module')
def queries(vectors):
  rng = np.random.default_rng(1)
  return np.concatenate(
    [vectors[:6], rng.standard_normal((10, 16)).astype(np.float32)]
  )


def build(path, rows, **config):
  defaults = {'searcher': 'exact', 'num_queries': 50}
  config = index_lib.IndexConfig(**defaults | config)
  return index_lib.build_index(path, rows, 'v', config)


def same(hits, expected):
  assert [x.dtype for x in hits] == [x.dtype for x in expected]
  np.testing.assert_equal(hits, expected)


@pytest.mark.parametrize('metric', METRICS)
@pytest.mark.parametrize(('shards', 'k'), [(2, 60), (7, 60), (60, 70)])
def test_exact_shards_are_one_exact_index(
  tmp_path, vectors, queries, metric, shards, k
):
  """Sixty shards hold 50 rows each, fewer than k."""
  index = build(tmp_path / 'i', vectors, metric=metric, shards=shards)
  wanted = searchers.ExactSearcher(vectors, metric).search(queries, k)
  assert index.searcher.num_shards == shards and index.searcher.is_exact
  same(index.searcher.search(queries, k), wanted)
  searcher = index_lib.open_index(tmp_path / 'i', shards_in_memory=0).searcher
  same(searcher.search(queries, k), wanted)
  assert searchers.exact_of(searcher, vectors) is searcher


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'float16'])
def test_vectors_of_a_store_are_not_copied(tmp_path, vectors, queries, dtype):
  rows = tiny_stores.write_vectors(
    tmp_path / 'vectors', vectors.astype(dtype)
  ).array('vectors')
  index = build(tmp_path / 'index', rows, shards=4)
  wanted = searchers.ExactSearcher(rows, 'squared_l2').search(queries, 9)
  same(index.searcher.search(queries, 9), wanted)
  names = {f.name for f in index.path.rglob('*') if f.suffix == '.npy'}
  assert not names
  assert index.report['bytes_per_vector'] >= rows.dtype.itemsize * 16


def test_more_neighbors_than_rows_are_none(tmp_path, vectors, queries):
  index = build(tmp_path / 'i', vectors[:20], shards=6)
  ids, scores = index.searcher.search(queries, 25)
  assert (np.sort(ids[:, :20]) == np.arange(20)).all()
  assert (ids[:, 20:] == -1).all() and np.isneginf(scores[:, 20:]).all()
  ids, scores = index.searcher.search(queries[:0], 3)
  assert ids.shape == scores.shape == (0, 3)
  with pytest.raises(ValueError, match='Query 1 holds NaN'):
    index.searcher.search(np.float32([[0] * 16, [np.nan] * 16]), 3)


@pytest.fixture(scope='module')
def many():
  rng = np.random.default_rng(2)
  rows = rng.standard_normal((100, 32))[rng.integers(0, 100, 20_000)]
  rows = (rows + rng.standard_normal(rows.shape)).astype(np.float32)
  return rows[:19_000], rows[19_000:19_200]


@clusters.NEEDS_SCANN
@pytest.mark.parametrize('rescore', ['float32', 'none'])
def test_scann_shards_reach_the_floor_with_exact_scores(
  tmp_path, many, rescore
):
  index = build(
    tmp_path / 'i',
    many[0],
    searcher='scann',
    shards=3,
    scann={'rescore': rescore},
  )
  assert (index.path / 'shard-000000' / 'scann_config.pb').exists()
  assert index.report['recall@10'] >= 0.95
  ids, scores = index.searcher.search(many[1], 10)
  again = searchers.ExactSearcher(many[0], 'squared_l2').score(many[1], ids)
  np.testing.assert_array_equal(scores, again.astype(np.float32))
  exact = {
    held: searchers.exact_of(
      searchers.load(index.path, shards_in_memory=held), many[0]
    )
    for held in (1, 0)
  }
  assert {held: x._resident for held, x in exact.items()} == {1: False, 0: True}


_PEAK = """
import re, sys
import numpy as np
from retrieval import searchers
searcher = searchers.load(sys.argv[1], shards_in_memory=int(sys.argv[2]))
queries = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32)
searcher.search(queries, 5)
# The peak of resource.getrusage may be that of the process that started this one.
status = open('/proc/self/status').read()
print(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(
  not pathlib.Path('/proc/self/status').exists(), reason='Linux tells peaks.'
)
def test_peak_memory_is_that_of_one_shard(tmp_path):
  """Four times the rows, in shards of the same size; then all held at a time."""
  rng = np.random.default_rng(0)
  rows = rng.standard_normal((320_000, 128)).astype(np.float32)
  peaks = {}
  for shards, held in ((4, 1), (16, 1), (16, 0)):
    path = tmp_path / f'index{shards}'
    if not path.exists():
      stored = tiny_stores.write_vectors(
        tmp_path / f'v{shards}', rows[: 20_000 * shards]
      ).array('vectors')
      build(path, stored, shards=shards, num_queries=5)
    peaks[shards, held] = int(
      subprocess.run(
        [sys.executable, '-c', _PEAK, path, str(held)],
        capture_output=True,
        check=True,
        text=True,
      ).stdout
    )
  assert peaks[16, 1] < 1.2 * peaks[4, 1], peaks
  assert peaks[16, 0] > 1.4 * peaks[4, 1], peaks


def test_a_cluster_holds_no_whole_index(tmp_path, vectors):
  searchers.ExactSearcher(vectors).save(tmp_path)
  try:
    cluster_settings.hold_shards('auto')
    assert searchers.load(tmp_path).name == 'exact'
  finally:
    cluster_settings.hold_shards('')
  with pytest.raises(ValueError, match="cluster='auto'"):
    searchers.load(tmp_path, cluster='auto')
