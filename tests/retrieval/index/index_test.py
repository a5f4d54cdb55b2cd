# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os
import sys

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import published_index as index_lib
from retrieval.searchers import recall_check
from retrieval.store import checksums
from tests.retrieval.searchers import clusters

SCANN = index_lib.IndexConfig(searcher='scann', num_queries=200)
EXACT = dataclasses.replace(SCANN, searcher='exact')


@pytest.fixture(scope='module')
def vectors():
  return clusters.clustered()


@clusters.NEEDS_SCANN
def test_builds_measures_publishes_and_reopens(tmp_path, vectors):
  index = index_lib.build_index(tmp_path / 'index', vectors, 'v', SCANN)
  report = index.report
  assert report['searcher'] == 'scann' and report['vectors'] == 5000
  assert 0.95 <= report['recall@10'] <= 1
  assert report['queries_per_sec'] > 0 and report['build_sec'] > 0
  assert report['exact_queries_per_sec'] > 0
  assert 4 * 16 < report['bytes_per_vector'] < 20 * 16
  assert sorted(os.listdir(tmp_path)) == ['index']
  again = index_lib.open_index(tmp_path / 'index')
  assert again.fingerprint == index.fingerprint
  assert again.vectors_fingerprint == 'v'
  np.testing.assert_equal(
    again.searcher.search(vectors[:50], 10),
    index.searcher.search(vectors[:50], 10),
  )


@clusters.NEEDS_SCANN
def test_same_inputs_reuse_what_stands(tmp_path, vectors):
  path = tmp_path / 'index'
  first = index_lib.build_index(path, vectors, 'v', SCANN)
  inode = (path / 'index.json').stat().st_ino
  second = index_lib.build_index(path, vectors, 'v', SCANN)
  assert second.fingerprint == first.fingerprint
  assert (path / 'index.json').stat().st_ino == inode
  for change, said in (
    ({'searcher': 'exact'}, "searcher: expected 'exact', found 'scann'"),
    ({'metric': 'dot_product'}, "metric: expected 'dot_product'"),
    ({'scann': {'num_leaves': 9}}, 'scann: expected .*num_leaves'),
  ):
    config = dataclasses.replace(SCANN, **change)
    with pytest.raises(ValueError, match=said):
      index_lib.build_index(path, vectors, 'v', config)
  with pytest.raises(ValueError, match="vectors: expected 'w', found 'v'"):
    index_lib.build_index(path, vectors, 'w', SCANN)


@clusters.NEEDS_SCANN
def test_below_the_floor_nothing_is_published(tmp_path, vectors):
  settings = {'num_leaves': 70, 'num_leaves_to_search': 1}
  config = dataclasses.replace(SCANN, recall_floor=0.9, scann=settings)
  with pytest.raises(ValueError, match='recall_floor'):
    index_lib.build_index(tmp_path / 'index', vectors, 'v', config)
  assert not os.listdir(tmp_path)
  settings = {'num_leaves': 70, 'num_leaves_to_search': 35}
  config = dataclasses.replace(config, scann=settings)
  index_lib.build_index(tmp_path / 'index', vectors, 'v', config)
  config = dataclasses.replace(config, recall_at=20)
  with pytest.raises(ValueError, match='recall@20'):
    index_lib.build_index(tmp_path / 'index', vectors, 'v', config)


def test_rows_used_as_queries_do_not_count_themselves(vectors):
  exact = searchers.ExactSearcher(vectors, 'squared_l2')
  queries, own = recall_check.sample(vectors, None, 100)
  ids, _ = recall_check.answer(exact, queries, own, 10)
  assert ids.shape == (100, 10) and not (ids == own[:, None]).any()
  held_out = vectors[:50] + np.float32(0.1)
  queries, own = recall_check.sample(vectors, held_out, 20)
  np.testing.assert_array_equal(  # evenly spread
    queries, held_out[[5 * i // 2 for i in range(20)]]
  )
  assert recall_check.answer(exact, queries, own, 10)[0].shape == (20, 10)


def test_small_databases_are_searched_exactly(tmp_path, vectors, caplog):
  config = dataclasses.replace(SCANN, searcher='auto')
  with caplog.at_level('INFO', logger='absl'):
    index = index_lib.build_index(tmp_path / 'i', vectors[:200], 'v', config)
  assert index.searcher.name == 'exact'
  assert caplog.text.count('too few for ScaNN') == 1
  with pytest.raises(ValueError, match='database is empty'):
    index_lib.build_index(tmp_path / 'j', vectors[:0], 'v', config)
  with pytest.raises(ValueError, match='Database is a list'):
    index_lib.build_index(tmp_path / 'j', vectors[:9].tolist(), 'v', config)


@pytest.mark.parametrize(
  'kind, said',
  [('usearch', 'USearch serves'), ('exact', 'Exact search serves')],
)
def test_another_searcher_serves_without_scann(
  tmp_path, vectors, monkeypatch, caplog, kind, said
):
  if kind == 'usearch':
    pytest.importorskip('usearch')
  monkeypatch.setitem(sys.modules, 'scann.scann_ops.py', None)
  monkeypatch.setattr(searchers, 'usearch_available', lambda: kind != 'exact')
  index = index_lib.build_index(tmp_path / 'index', vectors, 'v', SCANN)
  assert index.searcher.name == kind
  assert f'{said} instead of ScaNN' in caplog.text


def test_damage_is_found_when_opening(tmp_path, vectors, monkeypatch):
  path = tmp_path / 'index'
  index_lib.build_index(path, vectors, 'v', EXACT)
  file = path / 'vectors.npy'
  whole = file.read_bytes()
  file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
  with pytest.raises(ValueError, match=r'vectors\.npy: damaged \(checksum'):
    index_lib.open_index(path)
  with monkeypatch.context() as patch:
    patch.setenv(checksums.VARIABLE, 'off')
    index_lib.open_index(path)
  file.unlink()
  with pytest.raises(ValueError, match='vectors.npy: missing'):
    index_lib.open_index(path)
  text = (path / 'index.json').read_text()
  (path / 'index.json').write_text(
    text.replace('"report": {', '"report": {"a":1,')
  )
  with pytest.raises(ValueError, match=r'index\.json: damaged \(checksum'):
    index_lib.open_index(path)
  (path / 'index.json').write_text('{')
  with pytest.raises(ValueError, match='index.json: not JSON'):
    index_lib.open_index(path)
  with pytest.raises(FileNotFoundError, match='no index here'):
    index_lib.open_index(tmp_path / 'nowhere')


@pytest.mark.usefixtures('unchecked')
@pytest.mark.parametrize(
  ('change', 'said'),
  [
    ({'searcher': 'faiss'}, "searcher='faiss'"),
    ({'scann': {'leaves': 3}}, 'scann.leaves'),
    ({'scann': {'num_leaves': -1}}, 'scann.num_leaves=-1'),
  ],
)
def test_wrong_settings_are_named(tmp_path, vectors, change, said):
  with pytest.raises(ValueError, match=said):
    config = dataclasses.replace(SCANN, **change)
    index_lib.build_index(tmp_path / 'index', vectors, 'v', config)
