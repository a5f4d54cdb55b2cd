# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM trained by its command: devices, kills, builders in other processes."""

import dataclasses
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from absl import logging
import jax
import numpy as np
import pytest

from experiments.engine import configs
from experiments.realm import refresh_worker, starts, task as realm_task
from realm_jax.data import folder as realm_data
from realm_jax.trained import index_builder, loading
from retrieval.index import index_versions
from tests import free_port, xla_flags
from tests.experiments.engine import equal_runs
from tests.experiments.realm import tiny_realm

_TIMEOUT_SEC = 120


def _train(data, workdir, devices=1, **fields):
  """Trains in this process on some of its eight devices."""
  config = tiny_realm.get_config(data, **fields)
  with pytest.MonkeyPatch.context() as patch:
    for name in ('devices', 'local_devices'):
      chosen = functools.partial(jax.devices().__getitem__, slice(devices))
      patch.setattr(jax, name, chosen)
    realm_task.train(config, str(workdir))


def _start(data, workdir, *arguments, devices=1):
  """Trains in another process."""
  flags = xla_flags.devices(devices)
  script = [tiny_realm.__file__, str(data), str(workdir)]
  # A file, not a pipe: nobody reads along, and a full pipe would stop the run.
  with tempfile.NamedTemporaryFile(delete=False) as log:
    process = subprocess.Popen(
      [sys.executable, *script, *arguments],
      env=os.environ | {'XLA_FLAGS': flags},
      stderr=log,
    )
  process.log = pathlib.Path(log.name)
  return process


def _start_two(data, workdir, *arguments):
  """Two processes of one run."""
  address = free_port.address()
  shared = (f'--coordinator={address}', '--processes=2', *arguments)
  return [_start(data, workdir, f'--process={i}', *shared) for i in range(2)]


def _finish(process, code=0):
  process.wait(timeout=_TIMEOUT_SEC)
  errors = process.log.read_text()
  process.log.unlink()
  assert process.returncode == code, errors[-3000:]
  return errors


def _ages(workdir):
  return [
    row['index_age_steps']
    for row in equal_runs.rows(workdir)
    if 'index_age_steps' in row
  ]


def _versions(workdir):
  return index_versions.VersionFolder(workdir / 'index').names()


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_realm.make_data(tmp_path_factory.mktemp('data'))


@pytest.fixture(scope='module')
def runs(data, tmp_path_factory):
  """Workdirs of runs that differ in devices."""
  root = tmp_path_factory.mktemp('runs')
  parts = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
  _train(data, root / 'one')
  _train(data, root / 'eight', 8, **parts)
  return root


def test_a_sync_run_refreshes_between_batches(runs):
  assert _ages(runs / 'one') == [0, 1, 2, 0, 1, 2, 0, 1]
  steps = [index_versions.step_of(x) for x in _versions(runs / 'one')]
  assert steps == [3, 6]
  losses = [
    row['loss'] for row in equal_runs.rows(runs / 'one') if 'loss' in row
  ]
  assert losses[-1] < 0.6 * losses[0]


@pytest.mark.slow
def test_a_killed_run_continues_bit_for_bit_with_its_index(data, runs):
  # Compiled for a process of eight devices, it finds the programs of `one`.
  killed = _start(data, runs / 'killed', '--die_at=4', '--first=1', devices=8)
  _finish(killed, -signal.SIGKILL)
  _train(data, runs / 'killed')
  assert equal_runs.rows(runs / 'killed') == equal_runs.rows(runs / 'one')
  assert _versions(runs / 'killed') == _versions(runs / 'one')


def test_one_device_equals_eight(runs):
  one, eight = equal_runs.rows(runs / 'one'), equal_runs.rows(runs / 'eight')
  assert len(one) == len(eight)
  for a, b in zip(one, eight, strict=True):
    assert a == pytest.approx(b, abs=2e-5, rel=2e-5)


@pytest.mark.slow
def test_two_processes_train_and_build_as_one(data, tmp_path):
  """Without dropout, which falls on other rows: processes interleave theirs."""
  fields = {'num_steps': 3, 'refresh.every': 2, 'eval_batches': 0}
  # Small steps: Adam makes rounding of small gradients as large as the others.
  fields['optimizer.learning_rate'] = 3e-4
  for bert in ('embedder', 'encoder'):
    fields[f'{bert}.dropout_rate'] = 0.0
  arguments = [f'--{name}={value}' for name, value in fields.items()]
  processes = _start_two(data, tmp_path / 'two', *arguments)
  _train(data, tmp_path / 'one', **fields)
  for process in processes:
    _finish(process)
  one, two = (
    equal_runs.rows(tmp_path / 'one'),
    equal_runs.rows(tmp_path / 'two'),
  )
  assert len(one) == len(two) == 3
  for a, b in zip(one, two, strict=True):
    assert a == pytest.approx(b, abs=2e-5, rel=2e-5)
  steps = [index_versions.step_of(x) for x in _versions(tmp_path / 'two')]
  assert steps == [0, 2]


@pytest.mark.slow
def test_two_processes_train_beside_a_worker(data, tmp_path):
  fields = {
    'num_steps': 8,
    'refresh.schedule': 'async',
    'refresh.every': 1,
    'mesh.fsdp': 2,
    'pause_sec': 0.3,
    'eval_batches': 0,
  }
  arguments = [f'--{name}={value}' for name, value in fields.items()]
  processes = _start_two(data, tmp_path / 'run', *arguments)
  for process in processes:
    log = _finish(process)
    assert 'no new index' not in log
  rows = equal_runs.rows(tmp_path / 'run')
  assert len(rows) == 8 and rows[-1]['index_failures'] == 0


def _until(condition, *processes):
  deadline = time.monotonic() + _TIMEOUT_SEC
  while not condition():
    assert time.monotonic() < deadline
    for process in processes:
      assert process.poll() is None, process.log.read_text()[-3000:]
    time.sleep(0.1)


def _children(pid):
  children = pathlib.Path(f'/proc/{pid}/task/{pid}/children')
  found = [int(x) for x in children.read_text().split()]
  return [
    x
    for x in found
    if 'spawn_main' in pathlib.Path(f'/proc/{x}/cmdline').read_text()
  ]


_ASYNC = ('--refresh.schedule=async', '--refresh.every=5', '--eval_batches=0')


@pytest.mark.slow
def test_a_killed_builder_process_is_replaced_and_nothing_is_lost(
  data, tmp_path
):
  """Trainer and builder are killed in turn; the run ends with a fresh index."""
  steps = ('--num_steps=4000', '--checkpoint_every=50', '--log_every=20')
  # Builders take seconds to start: a trainer that pauses leaves them the CPU.
  run = _start(data, tmp_path, *_ASYNC, *steps, '--pause_sec=0.05')
  _until(lambda: len(_versions(tmp_path)) >= 2, run)
  (child,) = _children(run.pid)
  os.kill(child, signal.SIGKILL)
  _until(lambda: [x for x in _children(run.pid) if x != child], run)
  saved = _versions(tmp_path)[-1]
  _until(lambda: _versions(tmp_path)[-1] > saved, run)
  _until(lambda: equal_runs.rows(tmp_path)[-1]['step'] > 50, run)
  orphans = _children(run.pid)
  run.send_signal(signal.SIGKILL)
  errors = _finish(run, -signal.SIGKILL)
  _until(lambda: not any(pathlib.Path(f'/proc/{x}').exists() for x in orphans))
  assert 'the builder died, exit code -9' in errors
  rows = equal_runs.rows(tmp_path)
  assert (
    rows[-1]['step'] > 50 and rows[-1]['index_age_steps'] < rows[-1]['step']
  )
  names = [p.name for p in (tmp_path / 'checkpoints').iterdir()]
  last = max(int(name) for name in names if name.isdigit())
  again = _start(
    data, tmp_path, *_ASYNC, f'--num_steps={last + 60}', *steps[1:]
  )
  assert f'Continuing {tmp_path} after step' in _finish(again)
  assert equal_runs.rows(tmp_path)[-1]['step'] == last + 60


@pytest.mark.slow
def test_a_worker_follows_snapshots_of_another_process(
  data, tmp_path, monkeypatch
):
  """The worker's own command, beside a trainer in another process."""
  fields = (*_ASYNC, '--refresh.builder=external', '--num_steps=60')
  fields += ('--checkpoint_every=20',)
  trainer = _start(data, tmp_path, *fields)
  lines = []
  monkeypatch.setattr(logging, 'info', lambda text, *x: lines.append(text % x))
  config = tiny_realm.get_config(data, num_steps=60)
  refresh_worker.refresh_worker(config, str(tmp_path))
  _finish(trainer)
  steps = [index_versions.step_of(x) for x in _versions(tmp_path)]
  assert steps[-1] == 60
  assert any(x.startswith('Published index version') for x in lines)
  assert not index_builder.read_failures(tmp_path / 'index')
  saved = json.loads((tmp_path / 'config.json').read_text())
  assert saved['refresh']['builder'] == 'external'


@pytest.mark.slow
def test_warm_starts_train_and_start_a_realm(data, tmp_path):
  runs = ('ict', 'mlm')
  trained = {}
  for name in runs:
    _train(data, tmp_path / name, task=name, num_steps=6)
    accuracy = [
      r['accuracy'] for r in equal_runs.rows(tmp_path / name) if 'accuracy' in r
    ]
    assert len(accuracy) == 6
    trained |= loading.load(tmp_path / name, str(data), part='realm').params
  folders = [tmp_path / name for name in runs]
  given = zip(('embedder_from', 'encoder_from'), folders, strict=True)
  config = tiny_realm.get_config(data, **{k: str(v) for k, v in given})
  found = starts.untrained(config, tiny_realm.data_of(config)).params
  assert set(found) == set(trained) == {'embedder', 'encoder'}
  jax.tree.map(np.testing.assert_array_equal, found, trained)
  config = configs.replaced(config, encoder_from=str(folders[0]))
  with pytest.raises(ValueError, match="'embedder'"):
    starts.untrained(config, tiny_realm.data_of(config))


@pytest.mark.parametrize('task', ['realm', 'ict', 'mlm'])
def test_nothing_is_held_out(data, tmp_path, task):
  fields = {'task': task, 'valid_fraction': 0.0, 'eval_batches': 0}
  config = tiny_realm.get_config(data, **fields)
  folder = realm_data.DataFolder(data)
  make = {
    'realm': functools.partial(realm_task.make_task, workdir=tmp_path),
    'ict': realm_task.make_ict_task,
    'mlm': realm_task.make_mlm_task,
  }[task]
  assert make(config, folder).pipeline_fingerprint
  with pytest.raises(ValueError, match='valid_fraction'):
    make(dataclasses.replace(config, eval_batches=2), folder)
