# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The loop: same on 1 and 8 devices, resumable, stops on NaN."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.engine import (
  loop,
  metric_writer,
  program as program_lib,
  tasks,
)
from retrieval.nn import means
from retrieval.store import checkpoints
from tests import free_port, xla_flags
from tests.experiments.engine import equal_runs, toy_task
from tests.retrieval.store import other_writer, tiny_stores

_TIMEOUT_SEC = 100
_ONE = jax.devices()[:1]
_WHOLE = {'data': 1, 'fsdp': 1, 'tensor': 1}


def _start(workdir, *arguments):
  return subprocess.Popen(
    [sys.executable, toy_task.__file__, str(workdir), *arguments],
    env=os.environ | {'XLA_FLAGS': xla_flags.FAST},
    stderr=subprocess.PIPE,
    text=True,
  )


def _train(workdir, devices=None, **fields):
  config = toy_task.get_config(**fields)
  task = toy_task.make_task(config)
  return loop.train(task, config, str(workdir), devices=devices)


def _params(workdir):
  return checkpoints.load_params(str(workdir))[0]


def _equal(a, b):
  return jax.tree.all(
    jax.tree.map(lambda x, y: (np.asarray(x) == np.asarray(y)).all(), a, b)
  )


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """An uninterrupted run on a 2 x 2 x 2 mesh, with dropout."""
  workdir = tmp_path_factory.mktemp('whole')
  fields = {'dropout_rate': 0.5, 'ragged': True, 'profile_steps': 2}
  return workdir, _train(workdir, **fields)


def test_writes_what_the_run_was(whole):
  workdir, state = whole
  rows = metric_writer.read(workdir)
  steps = [row['step'] for row in rows if 'loss' in row]
  assert steps == list(range(1, 9))
  assert [row['step'] for row in rows if 'valid/loss' in row] == [4, 8]
  rates = next(row for row in rows if 'steps_per_sec' in row)
  assert rates['tokens_per_sec'] == pytest.approx(
    rates['steps_per_sec'] * 16 * toy_task.LENGTH
  )
  assert 'mfu' not in rates  # a CPU has no peak in the table
  assert json.loads((workdir / 'config.json').read_text())['num_steps'] == 8
  assert list(workdir.glob('events.out.tfevents.*'))
  assert list((workdir / 'profile').rglob('*.xplane.pb'))
  assert int(state.step) == 8


def test_measurements_a_killed_run_owes_are_made(whole, tmp_path):
  shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
  path = tmp_path / metric_writer.FILE
  lines = path.read_text().splitlines(keepends=True)
  assert 'valid/loss' in lines[-1]
  path.write_text(''.join(lines[:-1]))
  for _ in range(2):  # the second finds nothing to do
    state = _train(tmp_path, dropout_rate=0.5, ragged=True)
    assert equal_runs.rows(tmp_path) == equal_runs.rows(whole[0])
    assert _equal(state.params, whole[1].params)


def test_a_failed_measurement_loses_no_step(tmp_path):
  config = toy_task.get_config(eval_every=8)
  dataset = toy_task.make_task(config).dataset

  def fail(split):
    if split == 'valid':
      raise RuntimeError('of an evaluation')
    return dataset(split)

  task = dataclasses.replace(toy_task.make_task(config), dataset=fail)
  with pytest.raises(RuntimeError, match='of an evaluation'):
    loop.train(task, config, str(tmp_path))
  assert checkpoints.find(str(tmp_path)).step == config.num_steps


def test_empty_validation_split_is_named():
  config = toy_task.get_config(batch_size=512)
  with pytest.raises(ValueError, match='no whole batch'):
    loop.validate(None, None, toy_task.make_task(config), 2)


def test_a_second_training_is_refused(tmp_path):
  with other_writer.refuses(tmp_path):
    _train(tmp_path)


def test_each_step_has_its_own_randomness():
  def loss(params, batch, key, train):
    del batch, train
    draw = means.Mean((jax.random.uniform(key),), (jnp.ones(()),))
    return means.Mean((params['x'] ** 2,), (jnp.ones(()),)), {'draw': draw}

  tx = optax.sgd(0.1)
  state = program_lib.TrainState(
    np.int32(0), {'x': 1.0}, tx.init({'x': 1.0}), jax.random.key(0)
  )
  draws = []
  for _ in range(2):
    state, metrics = program_lib.train_step(
      state,
      np.zeros(4),
      task=tasks.Task(init=None, loss=loss, dataset=None),
      tx=tx,
      schedule=lambda step: 0.1,
    )
    draws.append(float(metrics['draw']))
  assert draws[0] != draws[1]
  assert float(state.params['x']) == pytest.approx(0.8**2)


def test_one_device_equals_eight(whole, tmp_path):
  _train(
    tmp_path,
    devices=_ONE,
    dropout_rate=0.5,
    ragged=True,
    mesh=_WHOLE,
  )
  one, eight = equal_runs.rows(tmp_path), equal_runs.rows(whole[0])
  assert len(one) == len(eight)
  for a, b in zip(one, eight, strict=True):
    assert a == pytest.approx(b, abs=5e-6, rel=5e-6)


def test_large_parameters_and_moments_are_sharded(whole):
  _, state = whole
  for tree in (state.params, state.opt_state[1][0].mu):
    kernel = tree['Dense_0']['kernel']
    table = tree['Embed_0']['embedding']
    assert kernel.sharding.shard_shape(kernel.shape) == (8, 32)
    assert table.sharding.shard_shape(table.shape) == (16, 8)
    # Two copies (the data axis) of a quarter each.
    assert sum(s.data.nbytes for s in kernel.addressable_shards) == (
      2 * kernel.nbytes
    )


def test_a_part_of_a_part_is_frozen():
  def program(**scales):
    config = toy_task.get_config(mesh=_WHOLE, optimizer={'part_scales': scales})
    return program_lib.make_program(
      toy_task.make_task(config), config, devices=_ONE
    )

  found = program(**{'Dense_0/kernel': 0, 'Embed_0': 0.5})
  with found.context():
    state = found.init(jax.random.key(0))
    before = jax.device_get(state.params)
    rows = [toy_task.Counting(16)[i] for i in range(16)]
    batch = jax.tree.map(lambda *x: np.stack(x), *rows)
    for _ in range(2):  # the first warms up from a learning rate of 0
      state, _ = found.step(state, batch)
  moved = jax.tree.map(
    lambda x, y: bool((x != y).any()), before, jax.device_get(state.params)
  )
  assert moved['Dense_0'] == {'bias': True, 'kernel': False}
  assert moved['Embed_0']['embedding'] and moved['Dense_1']['kernel']
  assert {*state.opt_state[1][0].mu['Dense_0']} == {'bias'}
  for scales in ({'Dense_0/kernel': 0.5}, {'Dense_0/kern': 0}, {'x': 0}):
    with pytest.raises(ValueError, match='part_scales'):
      program(**scales)


def test_validation_batches_are_pooled():
  """Cut into microbatches of four rows, without dropout."""
  found, seen = [], []
  for size, parts in ((64, 1), (16, 4)):
    config = toy_task.get_config(
      batch_size=size,
      dropout_rate=0.5,
      ragged=True,
      mesh=_WHOLE,
      optimizer={'accumulate_steps': parts},
    )
    task = toy_task.make_task(config)

    def loss(params, batch, *how, task=task):
      seen.append(len(batch['mask']))
      return task.loss(params, batch, *how)

    task = dataclasses.replace(task, loss=loss)
    program = program_lib.make_program(task, config, devices=_ONE)
    with program.context():
      params = program.init(jax.random.key(0)).params
      found.append(loop.validate(program, params, task, 64 // size))
  assert found[1] == pytest.approx(found[0], rel=1e-6)
  assert set(seen) == {64, 4}


def test_killed_run_continues_bit_for_bit(whole, tmp_path):
  process = _start(
    tmp_path, '--dropout_rate=0.5', '--ragged=True', '--die_at=6'
  )
  process.communicate(timeout=_TIMEOUT_SEC)
  assert process.returncode == -signal.SIGKILL
  assert max(row['step'] for row in metric_writer.read(tmp_path)) == 6
  # The save of step 6 ended or not; that of step 3 did.
  with (tmp_path / metric_writer.FILE).open('a') as file:
    file.write('{"step": 7, "loss": 9.0}\n{"step": 7, "lo')
  _train(tmp_path, dropout_rate=0.5, ragged=True)
  assert equal_runs.rows(tmp_path) == equal_runs.rows(whole[0])
  assert _equal(_params(whole[0]), _params(tmp_path))


def _start_pair(workdir, *arguments):
  address = free_port.address()
  return [
    _start(workdir, *arguments, f'--coordinator={address}', f'--process={i}')
    for i in range(2)
  ]


@pytest.mark.slow
def test_damage_stops_both_of_two_processes(tmp_path):
  """Each looks at a part of the files; both end."""
  for process in _start_pair(tmp_path, '--num_steps=4'):
    _, errors = process.communicate(timeout=_TIMEOUT_SEC)
    assert process.returncode == 0, errors
  arrays = (tmp_path / 'checkpoints' / '4').rglob('d/*')
  victim = max(arrays, key=lambda x: x.stat().st_size)
  tiny_stores.flip(victim, victim.stat().st_size // 2)
  errors = []
  for process in _start_pair(tmp_path, '--num_steps=8'):
    errors.append(process.communicate(timeout=_TIMEOUT_SEC)[1])
    assert process.returncode not in (0, None)
  assert any(f'{victim.name}: damaged' in x for x in errors), errors


def test_changed_pipeline_is_refused(whole):
  config = toy_task.get_config(
    dropout_rate=0.5, ragged=True, batch_size=24, optimizer={'b2': 0.5}
  )
  expected = r'batch_size: 16 -> 24; optimizer\.b2: .* -> 0.5'
  before = (whole[0] / 'config.json').read_text()
  with pytest.raises(ValueError, match=expected):
    loop.train(toy_task.make_task(config), config, str(whole[0]))
  assert (whole[0] / 'config.json').read_text() == before


def test_nan_stops_and_keeps_the_last_good_checkpoint(tmp_path):
  fields = {'num_steps': 8, 'checkpoint_every': 1, 'eval_batches': 0}
  config = toy_task.get_config(**fields)
  batches = iter(toy_task.make_task(config).dataset('train'))
  order = [row for _ in range(4) for row in next(batches)['tokens']]
  source = toy_task.Counting(256)
  nan_at = next(
    i for i in range(256) if (source[i]['tokens'] == order[3 * 16]).all()
  )
  with pytest.raises(loop.NotFiniteError, match='step 4: loss nan.*: 3'):
    _train(tmp_path, devices=_ONE, nan_at=nan_at, mesh=_WHOLE, **fields)
  assert [row['step'] for row in metric_writer.read(tmp_path)] == [1, 2, 3]
  params, saved = checkpoints.load_params(str(tmp_path))
  assert saved.step == 3 and saved.config.nan_at == nan_at
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))
