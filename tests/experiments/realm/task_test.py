# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs to start from."""

import pytest

from configs import realm_pretrain_quickstart
from experiments.engine import configs
from experiments.realm import config as config_lib, starts
from retrieval.store import checkpoints


def _config(**fields):
  c = realm_pretrain_quickstart.get_config('test')
  return configs.replaced(configs.build(config_lib.Config, c), **fields)


def test_a_run_of_another_kind_of_model_is_refused(monkeypatch):
  params = {'embedder': {}}
  monkeypatch.setattr(
    checkpoints, 'load_params', lambda workdir: (params, None)
  )
  config = _config(embedder_from='runs/ict')
  assert starts.start_sources(config) == {'embedder': params}
  params = {'embedding': {}, 'encoder': {}}
  with pytest.raises(ValueError, match='config.embedder_from=runs/ict'):
    starts.start_sources(config)


def test_the_packaged_encoder_is_one_to_start_from():
  c = realm_pretrain_quickstart.get_config('short')
  c.embedder.checkpoint = ''
  found = starts.start_sources(configs.build(config_lib.Config, c))
  assert {*found} == {'encoder'} == {*found['encoder']}
