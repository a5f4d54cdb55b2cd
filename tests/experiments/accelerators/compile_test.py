# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of what a step would take, and refusals."""

import jax
import pytest

from configs import retro_pretrain_quickstart
from experiments.accelerators import chips, compile as compile_lib, programs
from experiments.engine import program as program_lib
from experiments.retro import task as retro_task
from retro_jax.data import folder as retro_data
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data

_V5E = chips.CHIPS['v5e']


@pytest.fixture
def config():
  return retro_pretrain_quickstart.get_config('test')


def _report(config, name, chip=_V5E):
  config, devices = tiny_config.build(config), jax.devices()[:2]
  return compile_lib.compiled_for(config, name, chip, devices)[0]


@pytest.mark.parametrize('name', ['train', 'evaluate'])
def test_a_report_tells_of_one_step(config, name):
  report = _report(config, name)
  assert report['mesh'] == {'data': 2, 'fsdp': 1, 'tensor': 1}
  assert (
    0
    < report['arguments_bytes']
    < report['needed_bytes']
    < report['memory_bytes']
  )
  # This CPU's layers are unrolled, so XLA counts all of them.
  assert 0.6 < 2 * report['xla_flops'] / report['model_flops'] < 1.5
  seconds = report['xla_traffic_bytes'] / _V5E.bandwidth
  assert report['peak_sec'] == pytest.approx(seconds)


def test_a_token_is_decoded_on_one_device(config):
  report = _report(config, 'decode')
  assert report['mesh'] == {'data': 1, 'fsdp': 1, 'tensor': 1}
  # A step reads the neighbors' keys and values; it does not encode them.
  assert 0.2 < report['xla_flops'] / report['model_flops'] < 2


def test_retrofit_trains_what_is_added(config):
  whole = _report(config, 'train')
  config.retrofit_from = 'runs/decoder'
  report = _report(config, 'train')
  assert report['arguments_bytes'] < 0.7 * whole['arguments_bytes']
  assert report['xla_flops'] < whole['xla_flops']


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


def test_unknown_chips_and_programs_are_refused(config):
  for topology in ('v99:2x2', 'v5e', ''):
    with pytest.raises(ValueError, match='topology'):
      chips.devices(topology)
  with pytest.raises(ValueError, match='program'):
    programs.trace(tiny_config.build(config), jax.devices()[:1], 'write')


@pytest.mark.parametrize(
  ('kind', 'chip'),
  [
    ('TPU v5 lite', 'v5e'),
    ('TPU v5p', 'v5p'),
    ('TPU v6 lite', 'v6e'),
    ('NVIDIA H100 80GB HBM3', 'h100'),
    ('cpu', None),
  ],
)
def test_knows_devices_by_their_names(kind, chip):
  device = type('Device', (), {'device_kind': kind})()
  assert chips.of_device(device) is (chip and chips.CHIPS[chip])


@pytest.mark.slow
@pytest.mark.parametrize('topology', ['v5e:2x2', 'v6e:2x2', 'h100:4'])
def test_compiles_for_chips_that_are_not_there(config, topology):
  config.model.dtype = 'bfloat16'
  try:
    devices = chips.devices(topology)
  except ImportError as error:
    pytest.skip(str(error))
  chip = chips.of(topology)
  config = tiny_config.build(config)
  report, _ = compile_lib.compiled_for(config, 'train', chip, devices)
  assert 0 < report['needed_bytes'] < report['memory_bytes']
