# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Signals end a command at once, whatever its code catches."""

import os
import signal
import subprocess
import sys

import pytest

_DEAF = """
import sys
import time

from experiments.engine import signals

signals.watch()
print('said', end='')  # not flushed
print('ready', file=sys.stderr, flush=True)
while True:
  try:
    time.sleep(60)
  except BaseException:
    pass
"""
_LOOP = """
import sys
import time

from experiments.engine import signals

signals.watch()
with signals.first_saves() as asked:
  asked()  # something could be saved from here on
  print('ready', file=sys.stderr, flush=True)
  while not asked():
    time.sleep(0.01)
  print('saving', file=sys.stderr, flush=True)
  if sys.argv[1:]:
    time.sleep(60)
  raise signals.Saved(7, asked())
"""


def _start(*arguments, **environment):
  process = subprocess.Popen(
    [sys.executable, '-c', *arguments],
    env=os.environ | environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # The tests may run under nohup, or in the background of a shell.
    preexec_fn=lambda: [
      signal.signal(x, signal.SIG_DFL) for x in (signal.SIGHUP, signal.SIGINT)
    ],
  )
  assert process.stderr.readline() == 'ready\n'
  return process


@pytest.mark.parametrize(
  'number, line',
  [
    (signal.SIGINT, 'Interrupted. Run the same command again to resume.\n'),
    pytest.param(
      signal.SIGTERM,
      'Terminated. Run the same command again to resume.\n',
      marks=pytest.mark.slow,
    ),
    pytest.param(
      signal.SIGHUP,
      'The terminal was closed. Run the same command again to resume.\n',
      marks=pytest.mark.slow,
    ),
  ],
)
def test_one_line_and_the_exit_code(number, line):
  with _start(_DEAF) as process:
    process.send_signal(number)
    try:
      out, err = process.communicate(timeout=20)
    finally:
      process.kill()  # a deaf one would keep the test for ever
  assert (process.returncode, out, err) == (128 + number, 'said', line)


@pytest.mark.parametrize(
  'number, word',
  [(signal.SIGINT, 'Interrupted.'), (signal.SIGTERM, 'Terminated.')],
)
def test_a_loop_ends_when_it_has_saved(number, word):
  with _start(_LOOP) as process:
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
  assert process.returncode == 128 + number
  end = 'Run the same command again to resume. Step 7 is saved.\n'
  assert err == f'saving\n{word} {end}'


@pytest.mark.parametrize(
  'second',
  [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)],
)
def test_a_second_signal_ends_a_loop_at_once(second):
  with _start(_LOOP, 'busy') as process:
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == 'saving\n'
    process.send_signal(second)
    try:
      process.communicate(timeout=20)
    finally:
      process.kill()
  assert process.returncode == 128 + second


def test_signals_are_answered_before_the_slow_imports():
  code = """
import signal, sys
sys.argv[:] = ['-m']  # as while Python looks for the module of python -m
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
import experiments
assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
assert callable(signal.getsignal(signal.SIGTERM))
assert 'jax' not in sys.modules and 'numpy' not in sys.modules
from experiments.engine import command  # which checks flags and files first
assert not {'jax', 'flax', 'orbax', 'grain', 'scipy'} & {*sys.modules}
"""
  subprocess.run([sys.executable, '-c', code], check=True)
