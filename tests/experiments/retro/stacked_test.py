# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training with stacked parameters: same values, its checkpoints, its program."""

import pathlib
import shutil

import jax
import numpy as np
import pytest

from experiments.engine import loop, metric_writer, program as program_lib
from experiments.retro import task as retro_task
from retrieval.kernels import backend
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data
from retro_jax.nn import stack
from retro_jax.trained import language_model
from tests.experiments.retro import tiny_config

STEPS = 4
ONE = jax.devices()[:1]


def _config(root, arg='test', fields=(), **model):
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
  fields = {
    'optimizer.learning_rate': 1e-3,
    'optimizer.warmup_steps': 1,
    'num_steps': STEPS,
    'eval_batches': 0,
  } | dict(fields)
  fields |= {f'model.{name}': value for name, value in model.items()}
  return tiny_config.tiny(
    'retro_pretrain_small', arg, data_dir=str(root), **fields
  )


def _task(config):
  return retro_task.make_task(
    config, retro_data.DataFolder(pathlib.Path(config.data_dir))
  )


def _train(config, workdir):
  return loop.train(_task(config), config, str(workdir), devices=ONE)


def _equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope='module')
def scanned(root, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('scanned')
  return workdir, _train(_config(root), workdir)


@pytest.fixture(scope='module')
def unrolled(root, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('unrolled')
  return workdir, _train(_config(root, layers='unrolled'), workdir)


@pytest.mark.slow
def test_both_forms_learn_the_same(scanned, unrolled):
  (one, state), (other, expected) = scanned, unrolled
  rows = [
    [row for row in metric_writer.read(path) if 'loss' in row]
    for path in (one, other)
  ]
  assert len(rows[0]) == STEPS
  for name in ('loss', 'grad_norm'):
    a, b = ([row[name] for row in run] for run in rows)
    np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=name)
  c = language_model.load(one).model.config
  assert stack.is_stacked(state.params)
  assert not stack.is_stacked(expected.params)
  flat = stack.unstack_params(c, state.params)
  assert jax.tree.structure(flat) == jax.tree.structure(expected.params)
  # Adam divides by the size of a gradient: where that is rounding, so is the step.
  far = jax.tree.map(
    lambda a, b: np.mean(np.abs(a - b) > 1e-5), flat, expected.params
  )
  assert max(jax.tree.leaves(far)) < 0.02


@pytest.mark.slow
def test_a_killed_run_continues_bit_for_bit(root, scanned, tmp_path):
  workdir, whole = scanned
  shutil.copytree(workdir, tmp_path, dirs_exist_ok=True)
  shutil.rmtree(tmp_path / 'checkpoints' / str(STEPS))
  assert checkpoints.find(str(tmp_path)).step == 2
  state = _train(_config(root), tmp_path)
  _equal(state.params, whole.params)
  _equal(state.opt_state, whole.opt_state)


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
