# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A stage that workers call, and the cluster that holds the shards of indices."""

import functools
import threading

import ml_collections
import pytest

from experiments.engine import cluster
from retrieval import searchers, settings


def _stage(seen):
  seen.append((cluster.is_worker(), searchers.holders()))


def _config(**fields):
  return ml_collections.ConfigDict({'cluster': fields})


def test_workers_leave_shards_to_the_cluster_of_the_command(monkeypatch):
  joined, seen = [], []
  monkeypatch.setattr(cluster, 'connect', joined.append)
  try:
    cluster.hold_shards(_config(address='auto', hold_shards=True))
    stage = cluster.Stage.of(functools.partial(_stage, seen))
    cluster.hold_shards(_config(address='auto'))
    assert joined == ['auto'] and not searchers.holders()
    worker = threading.Thread(target=stage, args=(object(),))
    worker.start()
    worker.join()
  finally:
    searchers.hold_shards('')
  _stage(seen)
  assert seen == [(True, 'auto'), (False, '')]


def test_a_config_without_a_cluster_holds_no_shards():
  cluster.hold_shards(ml_collections.ConfigDict())
  assert not searchers.holders()
  with pytest.raises(settings.SettingsError, match="address=''"):
    cluster.hold_shards(_config(hold_shards=True))
