# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The training and the evaluating command as two processes and as one."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from configs import retro_pretrain_quickstart
from tests import free_port, xla_flags
from tests.experiments.engine import equal_runs
from tests.retro_jax.data import tiny_data

_TIMEOUT_SEC = 280


def _arguments(root, workdir):
  config = pathlib.Path(retro_pretrain_quickstart.__file__)
  return [
    f'--config={config}:test',
    f'--config.data_dir={root}',
    f'--config.model.chunk_length={tiny_data.M}',
    f'--config.model.neighbor_length={tiny_data.R}',
    '--config.model.num_layers=1',
    '--config.model.cca_layers=(1,)',
    '--config.model.encoder_num_layers=1',
    f'--workdir={workdir}',
  ]


def _start(name, arguments, **environment):
  """A command with one CPU device."""
  environment = {
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': xla_flags.FAST,
    'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',  # compiles sooner
  } | environment
  return subprocess.Popen(
    [sys.executable, '-m', f'experiments.{name}', *arguments],
    env=os.environ | environment,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )


def _start_pair(name, arguments):
  address = free_port.address()
  return [
    _start(
      name,
      [*arguments, '--config.distributed=True'],
      JAX_COORDINATOR_ADDRESS=address,
      JAX_NUM_PROCESSES='2',
      JAX_PROCESS_ID=str(i),
    )
    for i in range(2)
  ]


def _wait(*processes):
  for process in processes:
    _, errors = process.communicate(timeout=_TIMEOUT_SEC)
    assert process.returncode == 0, errors[-3000:]


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """The same training by one process and by two, on the same data."""
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  folder = tmp_path_factory.mktemp('runs')
  one, two = (_arguments(root, folder / name) for name in ('one', 'two'))
  _wait(_start('train', one), *_start_pair('train', two))
  return root, folder


@pytest.mark.slow
def test_two_processes_train_as_one(folders):
  _, folder = folders
  one, two = equal_runs.rows(folder / 'one'), equal_runs.rows(folder / 'two')
  assert [row['step'] for row in one if 'loss' in row] == [1, 2, 3, 4]
  assert [row['step'] for row in one if 'valid/loss' in row] == [2, 4]
  assert len(one) == len(two)
  for a, b in zip(one, two, strict=True):
    assert a == pytest.approx(b, rel=5e-6, abs=5e-6)
  config = json.loads((folder / 'two' / 'config.json').read_text())
  assert config['distributed']


@pytest.mark.slow
def test_two_processes_evaluate_as_one(folders):
  root, folder = folders
  shuffled = '--config.evaluate.shuffled=False'
  _wait(
    _start('evaluate', [*_arguments(root, folder / 'one'), shuffled]),
    *_start_pair('evaluate', [*_arguments(root, folder / 'two'), shuffled]),
  )
  one, two = (
    json.loads((folder / name / 'evaluation.json').read_text())['rows']
    for name in ('one', 'two')
  )
  assert [row['name'] for row in one] == ['RETRO, k=2', 'RETRO off']
  for a, b in zip(one, two, strict=True):
    assert a['tokens'] == b['tokens'] > 0
    assert a['bits_per_byte'] == pytest.approx(b['bits_per_byte'], rel=5e-6)
