# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training with stacked parameters: when it is chosen, and its program."""

import pathlib

import jax
import pytest

from experiments.engine import program as program_lib
from experiments.retro import task as retro_task
from retrieval.kernels import backend
from retro_jax.data import folder as retro_data
from retro_jax.nn import stack
from tests.experiments.retro import tiny_config

ONE = jax.devices()[:1]


def _config(root, **model):
  model = {
    'num_layers': 6,
    'cca_layers': (2, 4, 6),
    'encoder_num_layers': 1,
    'share_embeddings': False,
    'copy_init': False,
    'encoder_d_model': 16,
    'layers': 'scanned',
    **model,
  }
  fields = {f'model.{name}': value for name, value in model.items()}
  return tiny_config.tiny('retro_pretrain_small', data_dir=str(root), **fields)


def _task(config):
  return retro_task.make_task(
    config, retro_data.DataFolder(pathlib.Path(config.data_dir))
  )


def test_the_devices_of_the_program_decide(root, monkeypatch):
  """Whatever devices this process has outside of the program's mesh."""
  monkeypatch.setattr(
    backend, 'is_cpu', lambda: jax.sharding.get_abstract_mesh().empty
  )
  config = _config(root, layers='auto')
  program = program_lib.make_program(_task(config), config, devices=ONE)
  assert stack.is_stacked(program.abstract.params)


@pytest.mark.slow
def test_a_deeper_model_has_no_longer_step():
  def num_lines(num_layers):
    cca_layers = tuple(range(2, num_layers + 1, 2))
    config = _config('', num_layers=num_layers, cca_layers=cca_layers)
    task, batch = retro_task.without_data(config)
    program = program_lib.make_program(task, config, devices=ONE)
    with program.context():
      text = program.step.lower(program.abstract, batch).as_text()
    return text.count('\n')

  assert abs(num_lines(16) - num_lines(8)) < 5
