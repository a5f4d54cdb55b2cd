# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs that are compiled without data are those of training."""

import types

import jax
import pytest

from experiments.accelerators import chips, compile as compile_lib, programs
from experiments.engine import program as program_lib
from experiments.realm import refresh, task as realm_task
from realm_jax.trained import model_configs
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm
from tests.realm_jax.data import pipeline_test


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_open_qa.make_data(tmp_path_factory.mktemp('data'))


@pytest.fixture
def vocabulary(data, monkeypatch):
  folder = tiny_realm.data_of(tiny_realm.get_config(data))
  monkeypatch.setattr(programs, '_VOCAB_SIZE', folder.tokenizer.vocab_size)
  return folder


def test_the_compiled_step_is_that_of_training(
  data, vocabulary, tmp_path, monkeypatch
):
  blocks = pipeline_test.Ring(0, vocabulary.blocks.num_blocks)
  served = types.SimpleNamespace(identity='', serving=lambda _: blocks)
  monkeypatch.setattr(refresh, 'Refresher', lambda *_: served)
  config = tiny_realm.get_config(data)
  task = realm_task.make_task(config, vocabulary, tmp_path)
  bare, shapes = programs.without_data(config)
  batches = iter(task.dataset('train'))
  batch = next(batches)
  batches.close()
  assert {k: (x.shape, x.dtype) for k, x in batch.items()} == {
    k: (x.shape, x.dtype) for k, x in shapes.items()
  }
  states = [
    program_lib.make_program(x, config, devices=jax.devices()[:1]).abstract
    for x in (task, bare)
  ]
  assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
  assert jax.tree.leaves(states[0]) == jax.tree.leaves(states[1])


def _report(config, name):
  chip, devices = chips.CHIPS['v5e'], jax.devices()[:2]
  return compile_lib.compiled_for(config, name, chip, devices)[0]


def test_exact_search_reads_all_vectors(data):
  config = tiny_realm.get_config(data)
  report = _report(config, 'search')
  d = model_configs.realm_config(config, 30_522).vector_size
  assert report['model_flops'] == 2 * config.batch_size * 13_353_718 * d
  share = 4 * 13_353_718 * d / 2
  assert report['arguments_bytes'] == pytest.approx(share, rel=0.01)


def test_blocks_are_embedded_by_all_devices(data):
  report = _report(tiny_realm.get_config(data), 'embed')
  assert report['mesh'] == {'data': 2} and report['xla_flops'] > 0
