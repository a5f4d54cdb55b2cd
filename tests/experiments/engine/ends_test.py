# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Signals end a command at once, whatever its main thread does."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_DEAF = """
import sys
import time

from experiments.engine import ends

ends.watch()
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

from experiments.engine import ends

ends.watch()
with ends.awaiting_termination() as asked:
  asked()  # something could be saved from here on
  print('ready', file=sys.stderr, flush=True)
  while not asked():
    time.sleep(0.01)
  print('saving', file=sys.stderr, flush=True)
  time.sleep(float(sys.argv[1]))
  ends.leave(15, 'saved')
"""


def _start(*arguments):
  process = subprocess.Popen(
    [sys.executable, '-c', *arguments],
    env=os.environ | {'PYTHONPATH': str(_ROOT)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # The tests may run under nohup.
    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
  )
  assert process.stderr.readline() == 'ready\n'
  return process


@pytest.mark.parametrize(
  'number, line',
  [
    (signal.SIGINT, 'interrupted; the same command continues.\n'),
    (signal.SIGTERM, 'terminated; the same command continues.\n'),
    (signal.SIGHUP, 'its terminal has gone; the same command continues.\n'),
  ],
)
def test_one_line_and_the_exit_code(number, line):
  with _start(_DEAF) as process:
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
  assert (process.returncode, out, err) == (128 + number, 'said', line)


def test_a_loop_ends_when_it_has_saved():
  with _start(_LOOP, '0') as process:
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
  assert (process.returncode, err) == (143, 'saving\nsaved\n')


@pytest.mark.parametrize('second', [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_loop_at_once(second):
  with _start(_LOOP, '60') as process:
    process.send_signal(signal.SIGTERM)
    assert process.stderr.readline() == 'saving\n'
    process.send_signal(second)
    _, err = process.communicate(timeout=20)
  assert process.returncode == 128 + second
  assert err.endswith('ed; the same command continues.\n')


def test_signals_are_answered_before_the_slow_imports():
  code = """
import signal, sys
sys.argv[:] = ['-m']  # as while Python looks for the module of python -m
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
import experiments
assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
assert callable(signal.getsignal(signal.SIGTERM))
assert 'jax' not in sys.modules and 'numpy' not in sys.modules
"""
  environment = os.environ | {'PYTHONPATH': str(_ROOT)}
  subprocess.run([sys.executable, '-c', code], env=environment, check=True)


def test_a_command_that_has_finished_lets_signals_pass():
  code = """
import os, signal, sys
from experiments.engine import ends

class Last:
  def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGTERM):
    kill(me, number)

ends.watch()
sys.last = Last()  # goes after Python's own handlers
"""
  environment = os.environ | {'PYTHONPATH': str(_ROOT)}
  subprocess.run([sys.executable, '-c', code], env=environment, check=True)


def test_a_finished_command_leaves_with_its_code_past_other_threads():
  code = """
import atexit, sys
from experiments.engine import ends

class Last:
  def __del__(self, write=sys.stderr.write):
    write('taken down')

ends.watch()
atexit.register(print, 'exit function', end='')  # not flushed
sys.last = Last()
ends.end_with(3)
sys.exit(3)
"""
  environment = os.environ | {'PYTHONPATH': str(_ROOT)}
  found = subprocess.run(
    [sys.executable, '-c', code],
    env=environment,
    capture_output=True,
    text=True,
  )
  expected = (3, 'exit function', '')
  assert (found.returncode, found.stdout, found.stderr) == expected
