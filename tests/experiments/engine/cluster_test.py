# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A stage that workers call, and the cluster that holds the shards of indices."""

import functools
import pickle
import threading

import ml_collections
import pytest

from experiments.engine import cluster, progress
from retrieval import searchers, settings
from retrieval.searchers import ray_shards

_SEEN = []


def _stage(name):
  _SEEN.append((name, cluster.is_worker(), searchers.holders()))


def _config(**fields):
  return ml_collections.ConfigDict({'cluster': fields})


def test_workers_leave_shards_to_the_cluster_of_the_command(monkeypatch):
  joined = []
  _SEEN.clear()
  monkeypatch.setattr(cluster.ray_cluster, 'connect', joined.append)
  monkeypatch.setattr(progress, '_SILENT', [])
  actors = ray_shards._Actors()
  actors.name = 'shard 5'
  monkeypatch.setattr(ray_shards, '_STARTED', {})
  try:
    cluster.hold_shards(_config(address='auto', hold_shards=True))
    stage = cluster.Stage.of(functools.partial(_stage, 'x'))
    ray_shards._STARTED['/index', 'job', 3, 4] = actors  # opened meanwhile
    pickled = pickle.dumps(stage)
    cluster.hold_shards(_config(address='auto'))
    _stage('driver')
    worker = threading.Thread(target=pickle.loads(pickled), args=(object(),))
    worker.start()
    worker.join()
  finally:
    searchers.hold_shards(ray_shards.Holders())
  assert joined == ['auto']
  names = {'/index': 'shard 5'}
  assert _SEEN == [
    ('driver', False, ray_shards.Holders()),
    ('x', True, ray_shards.Holders('auto', names)),
  ]


def test_a_config_without_a_cluster_holds_no_shards():
  cluster.hold_shards(ml_collections.ConfigDict())
  assert not searchers.holders().address
  with pytest.raises(settings.SettingsError, match="address=''"):
    cluster.hold_shards(_config(hold_shards=True))
