# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of what a step would take, and refusals."""

import importlib
import json
import pathlib

import jax
import pytest

from configs import retro_pretrain_quickstart
from experiments.accelerators import chips, compile as compile_lib, programs
from experiments.engine import configs, program as program_lib, rooms
from experiments.retro import task as retro_task
from retro_jax.data import folder as retro_data
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data


@pytest.fixture
def config():
  return retro_pretrain_quickstart.get_config('test')


@pytest.mark.parametrize('retrieval', [True, False])
@pytest.mark.parametrize('name', ['train', 'evaluate'])
def test_a_report_tells_of_one_step(config, here, name, retrieval):
  config.retrieval = retrieval
  found = compile_lib.analyze(config, 'v5e:1x2', name)
  assert found.fits and found.mesh == {'data': 2, 'fsdp': 1, 'tensor': 1}
  assert 0.6 < found.executed_flops / found.model_flops < 1.5
  assert 0 < found.mfu_bound < 1 and found.traffic_bytes > found.arguments_bytes
  kinds = {(x['kind'], tuple(x['axes'])) for x in found.exchanges}
  assert ('all-reduce', ('data',)) in kinds
  assert found.largest and found.lines > 100


def test_a_token_is_decoded_on_one_device(config, here):
  found = compile_lib.analyze(config, 'v5e:1x2', 'decode')
  assert found.mesh == {'data': 1, 'fsdp': 1, 'tensor': 1}
  # The other device of the topology does nothing.
  assert found.flops_sec == found.executed_flops / chips.CHIPS['v5e'].flops
  # A step reads the neighbors' keys and values; it does not encode them.
  assert 0.2 < found.executed_flops / found.model_flops < 1
  config.retrieval = False
  found = compile_lib.analyze(config, 'v5e:1x2', 'decode')
  assert 0.8 < found.executed_flops / found.model_flops < 1.2


def test_retrofit_trains_what_is_added(config, here):
  whole = compile_lib.analyze(config, 'v5e:1x2', 'train')
  config.retrofit_from = 'runs/decoder'
  found = compile_lib.analyze(config, 'v5e:1x2', 'train')
  assert found.arguments_bytes < 0.7 * whole.arguments_bytes
  assert found.executed_flops < whole.executed_flops


def test_the_compiled_step_is_that_of_training(tmp_path, config):
  """Same shapes of the state and of the batches that the data give."""
  config.data_dir = str(tiny_data.make(tmp_path))
  config.model.update(chunk_length=tiny_data.M, neighbor_length=tiny_data.R)
  data = retro_data.DataFolder(tmp_path)
  config.tokenizer.vocab_size = data.vocab_size
  config = tiny_config.build(config)
  task = retro_task.make_task(config, data)
  bare, shapes = retro_task.without_data(config)
  batch = next(iter(task.dataset('train')))
  assert {k: (x.shape, x.dtype) for k, x in batch.items()} == {
    k: (x.shape, x.dtype) for k, x in shapes.items()
  }
  assert bare.flops_per_step == task.flops_per_step
  states = [program_lib.make_program(x, config).abstract for x in (task, bare)]
  assert jax.tree.leaves(states[0]) == jax.tree.leaves(states[1])


def test_what_does_not_fit_names_its_arrays(config, here, monkeypatch):
  small = chips.Chip('tpu', 1e12, 1e6, 1e9, 1e9)
  monkeypatch.setitem(chips.CHIPS, 'v5e', small)
  found = compile_lib.analyze(config, 'v5e:1x2', 'train')
  assert not found.fits and 'GiB float32[' in found.largest[0]
  json.dumps(found.exchanges)


def test_unknown_chips_and_programs_are_refused(config):
  for topology in ('v99:2x2', 'v5e', ''):
    with pytest.raises(ValueError, match='topology'):
      chips.devices(topology)
  with pytest.raises(ValueError, match='program'):
    programs.trace(config, jax.devices()[:1], 'write')


@pytest.mark.slow
@pytest.mark.parametrize('topology', ['v5e:2x2', 'v6e:2x2', 'h100:4'])
def test_compiles_for_chips_that_are_not_there(config, topology):
  config.model.dtype = 'bfloat16'
  try:
    found = compile_lib.analyze(config, topology, 'train')
  except ImportError as error:
    pytest.skip(str(error))
  assert found.fits and not found.wide_products


def test_rows_of_the_page_name_configs_and_programs():
  file = pathlib.Path(compile_lib.__file__).with_name('rows.txt')
  lines = file.read_text().splitlines()
  assert len({line.split()[0] for line in lines}) == len(lines) > 40
  for line in lines:
    given = dict(x.split('=', 1) for x in line.split()[1:])
    path, _, arg = given.pop('--config').partition(':')
    name = path.removesuffix('.py').replace('/', '.')
    config = importlib.import_module(name).get_config(*filter(None, [arg]))
    assert given.pop('--program') in programs.TASKS[config.task]
    assert chips.of(given.pop('--topology'))
    root = rooms.config_class(config.task)
    for flag, value in given.items():
      configs.override(config, flag.removeprefix('--config.'), value, root)
