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
from retrieval.index import published_index as index_lib
from retrieval.searchers import ray_shards
from retrieval.store import cluster_settings, ray_cluster

with_ray = pytest.mark.skipif(
  importlib.util.find_spec('ray') is None, reason='needs the extra [cluster]'
)


def _processes(searcher):
  """Return the process of each shard's actor."""
  asked = [
    actor.__ray_call__.remote(lambda _: os.getpid())
    for actor in searcher._actors
  ]
  return ray_cluster.import_ray().get(asked)


def _processes_elsewhere(path):
  cluster_settings.hold_shards('auto')
  return _processes(index_lib.open_index(path).searcher)


def _raise(error):
  raise error


def test_what_is_wrong_with_a_shard_is_told_as_without_ray(monkeypatch):
  class RayTaskError(Exception):
    cause = ValueError('vectors-000000.npy: damaged')

  class RayActorError(Exception):
    pass

  errors = types.SimpleNamespace(
    RayActorError=RayActorError,
    ActorUnavailableError=RayActorError,
    RayTaskError=RayTaskError,
  )
  ray = types.SimpleNamespace(
    exceptions=errors, put=lambda x: x, get=lambda _: _raise(RayTaskError())
  )
  monkeypatch.setattr(ray_cluster, 'import_ray', lambda: ray)
  actor = types.SimpleNamespace(
    search=types.SimpleNamespace(remote=lambda *_: None)
  )
  searcher = types.SimpleNamespace(_actors=[actor])
  with pytest.raises(ValueError, match='damaged'):
    next(ray_shards.RayShardedSearcher._answers(searcher, None, 1))


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
      before = _processes(searcher)
      assert len(set(before) | {os.getpid()}) == 4
      if killed is not None:
        os.kill(before[killed], signal.SIGKILL)
      found = searcher.search(rows[:20], 9)
      for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert _processes(searcher) != before
    # Who else opens the index in this job asks the same actors.
    again = index_lib.open_index(path, cluster='auto').searcher
    in_worker = ray.get(ray.remote(_processes_elsewhere).remote(str(path)))
    assert _processes(again) == in_worker == _processes(searcher)
  finally:
    ray.shutdown()
