# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A training that a signal ends saves its step and continues bit for bit."""

import contextlib
import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.engine import loop, metric_writer, signals
from retrieval.store import checkpoints
from tests import free_port, xla_flags
from tests.experiments.engine import toy_task

_LINE = 'Run the same command again to resume. Step {} is saved.'
_ONE = {'data': 1, 'fsdp': 1, 'tensor': 1}


def _train(workdir):
  config = toy_task.get_config(
    dropout_rate=0.5, mesh=_ONE, num_steps=6, checkpoint_every=4, eval_batches=0
  )
  devices = jax.devices()[:1]
  loop.train(toy_task.make_task(config), config, str(workdir), devices=devices)


def _losses(workdir):
  names = ('step', 'loss', 'valid/loss')
  rows = metric_writer.read(workdir)
  return [{name: row.get(name) for name in names} for row in rows]


def _assert_same_run(first, second):
  assert _losses(first) == _losses(second)
  a, b = (checkpoints.load_params(str(x))[0] for x in (first, second))
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.slow
def test_continues_bit_for_bit(tmp_path, monkeypatch):
  @contextlib.contextmanager
  def after_step_5():
    yield iter([0] * 4 + [signal.SIGINT]).__next__

  _train(tmp_path / 'whole')
  with monkeypatch.context() as patch:
    patch.setattr(signals, 'first_saves', after_step_5)
    with pytest.raises(signals.Saved):
      _train(tmp_path / 'cut')
  folder = checkpoints.folder_of(tmp_path / 'cut')
  assert checkpoints.numbers(folder) == [4, 5]
  _train(tmp_path / 'cut')
  _assert_same_run(tmp_path / 'whole', tmp_path / 'cut')
  assert checkpoints.numbers(folder) == [5, 6]


@pytest.mark.slow
def test_two_processes_save_the_same_step(tmp_path):
  def run(workdir, *arguments):
    address = f'--coordinator={free_port.address()}'
    pair = [
      subprocess.Popen(
        [sys.executable, toy_task.__file__, str(workdir), *arguments]
        + [address, f'--process={i}', '--num_steps=400', '--eval_every=200'],
        env=os.environ | {'XLA_FLAGS': xla_flags.FAST},
        stderr=subprocess.PIPE,
        text=True,
        # The tests may run in the background of a shell.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
      )
      for i in range(2)
    ]
    errors = [process.communicate(timeout=100)[1] for process in pair]
    return [process.returncode for process in pair], errors

  arguments = ('--checkpoint_every=30', '--dropout_rate=0.5')
  codes, errors = run(tmp_path / 'cut', *arguments, '--signal_at=30')
  assert codes == [143, 143], errors
  last = max(checkpoints.numbers(checkpoints.folder_of(tmp_path / 'cut')))
  assert last % 30 and last < 400
  assert all(_LINE.format(last) in text for text in errors)
  for workdir in ('cut', 'whole'):
    codes, errors = run(tmp_path / workdir, *arguments)
    assert codes == [0, 0], errors
  _assert_same_run(tmp_path / 'whole', tmp_path / 'cut')
