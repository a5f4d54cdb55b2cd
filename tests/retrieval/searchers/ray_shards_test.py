# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Shards held by the actors of a Ray cluster on this machine."""

import importlib.util
import os
import signal
import types

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import index as index_lib
from retrieval.searchers import ray_shards, search_tasks
from retrieval.store import ray_cluster, ray_executor

with_ray = pytest.mark.skipif(
  importlib.util.find_spec('ray') is None, reason='needs the extra [cluster]'
)


def _processes(path, holders):
  searchers.hold_shards(holders)
  return index_lib.open_index(path).searcher.processes()


@pytest.mark.slow
@with_ray
def test_actors_answer_as_local_shards_and_survive_a_kill(tmp_path):
  rng = np.random.default_rng(0)
  rows = rng.standard_normal((2000, 16)).astype(np.float32)
  config = index_lib.IndexConfig(searcher='exact', shards=3, num_queries=5)
  path = index_lib.build_index(tmp_path / 'i', rows, 'v', config).path
  wanted = searchers.load(path).search(rows[:20], 9)
  # A cluster of its own, even where another one runs on this machine.
  ray = ray_cluster.connect('local')
  try:
    searcher = index_lib.open_index(path, cluster='auto').searcher
    for killed in (None, 1):
      before = searcher.processes()
      assert len(set(before) | {os.getpid()}) == 4
      if killed is not None:
        os.kill(before[killed], signal.SIGKILL)
      found = searcher.search(rows[:20], 9)
      for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert searcher.processes() != before
    # Who else opens the index in this job asks the same actors.
    again = index_lib.open_index(path, cluster='auto').searcher
    holders = ray_shards.Holders('auto').for_workers()
    in_worker = ray.get(ray.remote(_processes).remote(str(path), holders))
    assert again.processes() == in_worker == searcher.processes()
    searcher.close()
    anew = index_lib.open_index(path, cluster='auto').searcher
    assert not {*anew.processes()} & {*in_worker}
    assert len(anew.search(rows[:1], 9)[0]) == 1
    anew.close()
  finally:
    ray.shutdown()


@pytest.mark.slow
@with_ray
def test_workers_build_and_measure_a_large_index(tmp_path, monkeypatch):
  rows = np.random.default_rng(1).standard_normal((3000, 16)).astype(np.float32)
  config = index_lib.IndexConfig(
    searcher='int8',
    shards=8,
    shard_by='centroid',
    shards_to_search=3,
    recall_floor=0.0,
  )
  alone = index_lib.build_index(tmp_path / 'alone', rows, 'v', config)
  monkeypatch.setattr(search_tasks, '_FEW_ROWS', 0)
  monkeypatch.chdir(tmp_path)
  ray = ray_cluster.connect('local')
  try:
    executor = ray_executor.RayExecutor(
      ray_cluster.Cluster(address='auto', workers=2), folders=[tmp_path]
    )
    built = index_lib.build_index('i', rows, 'v', config, executor=executor)
  finally:
    ray.shutdown()
  assert built.fingerprint == alone.fingerprint
  for name in ('recall@10', 'agreement_with_all_shards'):
    assert 0 < built.report[name] == alone.report[name] < 1
  assert 'queries_per_sec' not in built.report


def test_an_actor_that_starts_again_elsewhere_is_asked_again(monkeypatch):
  monkeypatch.setattr(ray_shards.time, 'sleep', lambda sec: None)

  class Unavailable(Exception):  # noqa: N818 - as Ray's
    pass

  def get(answer):
    if answer == 'lost':
      raise Unavailable
    return answer

  ray = types.SimpleNamespace(
    get=get, exceptions=types.SimpleNamespace(ActorUnavailableError=Unavailable)
  )
  answers = iter(['lost', 'found'])
  assert ray_shards._patient(ray, 'lost', lambda: next(answers)) == 'found'
  monkeypatch.setattr(ray_shards, '_START_SEC', -1.0)
  with pytest.raises(Unavailable):
    ray_shards._patient(ray, 'lost', lambda: 'found')
