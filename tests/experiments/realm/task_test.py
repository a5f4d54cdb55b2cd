# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs to start from."""

import pytest

from configs import realm_pretrain_quickstart
from experiments.realm import task
from retrieval.store import checkpoints


def test_a_run_of_another_kind_of_model_is_refused(monkeypatch):
  params = {'embedder': {}}
  monkeypatch.setattr(
    checkpoints, 'load_params', lambda workdir: (params, None)
  )
  config = realm_pretrain_quickstart.get_config('test')
  config.embedder_from = 'runs/ict'
  assert task.start_sources(config) == {'embedder': params}
  params = {'embedding': {}, 'encoder': {}}
  line = (
    r"config.embedder_from=runs/ict: .*'embedding', 'encoder'., expected one"
  )
  with pytest.raises(ValueError, match=line):
    task.start_sources(config)


def test_a_cluster_builds_the_indices_where_there_is_one():
  config = realm_pretrain_quickstart.get_config()
  config.refresh.schedule = 'async'
  config.cluster.address = 'auto'
  assert task.refresh_config(config).builder == 'ray'
  config.cluster.address = ''
  config.refresh.builder = 'ray'
  with pytest.raises(ValueError, match='config.cluster.address names no'):
    task._workers(config, '.')
