# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Executors: results, bounds, errors, processes that die."""

import functools
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from retrieval import settings
from retrieval.store import executors, shards

KIND = 'numbers'
FIELDS = {'of': 'test'}


class Calls:
  """Arguments of tasks, counted as they are taken."""

  def __init__(self, numbers):
    self._numbers, self.taken = numbers, 0

  def __iter__(self):
    for number in self._numbers:
      self.taken += 1
      yield (number,)


def add(base, number):
  return base + number


def pid(*unused):
  return os.getpid()


def fails_at_three(number):
  if number == 3:
    raise ValueError(f'Task {number} of process {os.getpid()} failed.')
  return number


def kill_itself(i):
  os.kill(os.getpid(), signal.SIGKILL)


def fail(i):
  raise OSError(f'disk {i}')


def goes_wrong(how, folder, number, times, i):
  """A task of which one number goes wrong some times, and leaves a mark each time."""
  seen = len([*pathlib.Path(folder).iterdir()])
  if i == number and seen < times:
    (pathlib.Path(folder) / f'{seen}').touch()
    how(i)
  return i


def no_such_model():
  raise ValueError('no such model')


@pytest.mark.parametrize('count', [0, 1])
def test_one_process_works_in_place(count):
  executor = executors.local(count)
  found = executor.run('job', functools.partial(add, 100), Calls(range(5)))
  assert list(found) == [100, 101, 102, 103, 104]
  assert list(executor.run('job', pid, [()])) == [os.getpid()]
  calls = Calls(range(9))
  found = executor.run('job', fails_at_three, calls)
  assert [next(found) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(ValueError, match='Task 3 of process'):
    next(found)
  assert calls.taken == 4


def test_processes_share_tasks_and_bad_input_reaches_the_caller_at_once():
  executor = executors.Processes(2)
  calls = Calls(range(20))
  found = []
  for result in executor.run('job', functools.partial(add, 10), calls):
    found.append(result)
    assert calls.taken <= len(found) + 4
  assert sorted(found) == [*range(10, 30)]
  with pytest.raises(ValueError, match='Task 3 of process') as error:
    list(executor.run('job', fails_at_three, Calls(range(6))))
  assert str(os.getpid()) not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize('times', [2, 9])
def test_a_task_whose_process_dies_runs_again_twice(tmp_path, times):
  task = functools.partial(goes_wrong, kill_itself, str(tmp_path), 4, times)
  results = set()
  run = executors.Processes(2).run('job', task, Calls(range(9)))
  if times == 2:
    assert {*run} == {*range(9)}
  else:
    with pytest.raises(executors.JobError, match='shard 4 failed 3 times'):
      results.update(run)
    # Of the other tasks none has to fail because of it.
    assert results >= {0, 1, 2, 3}
  assert len([*tmp_path.iterdir()]) == min(times, 3)


@pytest.mark.slow
def test_an_error_ends_the_job_at_once(tmp_path):
  task = functools.partial(goes_wrong, fail, str(tmp_path), 4, 9)
  with pytest.raises(OSError, match='disk 4'):
    list(executors.Processes(2).run('job', task, Calls(range(9))))
  assert len([*tmp_path.iterdir()]) == 1
  with pytest.raises(ValueError, match='no such model'):
    opened = executors.Lazy(no_such_model)
    list(executors.Processes(2).run('job', opened, Calls(range(6))))


def build(path, executor):
  """A store whose maker is a closure over something that is opened anew."""
  opened = executors.Lazy(open, os.devnull)

  def make(i, progress):
    assert not opened.closed
    return {'x': np.arange(2) + 10 * i, 'pid': np.array([os.getpid()])}

  return shards.build_store(
    path, KIND, FIELDS, [2] * 5, make, executor=executor
  )


def test_workers_make_the_shards_of_a_store(tmp_path):
  made = build(tmp_path / 'two', executors.Processes(2))
  alone = build(tmp_path / 'alone', None)
  pids = {*made.array('pid')[:].tolist()}
  assert os.getpid() not in pids and len(pids) <= 2
  np.testing.assert_array_equal(made.array('x')[:], alone.array('x')[:])


def refuse_a_setting(i):
  raise settings.SettingsError('size', i, 'at least 9')


class Unpicklable(OSError):
  """An error that cannot be made from its message alone."""

  def __init__(self, one, two):
    super().__init__(f'{one} {two}')


def raise_unpicklable(i):
  raise Unpicklable('disk', i)


@pytest.mark.slow
def test_errors_that_cannot_be_pickled_are_told():
  executor = executors.Processes(1)
  with pytest.raises(settings.SettingsError, match='size'):
    list(executor.run('job', refuse_a_setting, [(7,)]))
  with pytest.raises(RuntimeError, match='Unpicklable: disk 7'):
    list(executor.run('job', raise_unpicklable, [(7,)]))


_UNGUARDED = """
import operator
import sys

from retrieval.store import executors, locks

print('runs', file=sys.stderr)
with locks.writer(sys.argv[1]):
  list(executors.Processes(2).run('job', operator.neg, [(1,), (2,)]))
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_at_the_first_failure(tmp_path):
  script = tmp_path / 'script.py'
  script.write_text(_UNGUARDED)
  found = subprocess.run(
    [sys.executable, script, tmp_path],
    capture_output=True,
    text=True,
    timeout=60,
  )
  line = found.stderr.splitlines()[-1]
  assert found.returncode == 1 and line.startswith('retrieval.store.executors.')
  assert f'JobError: job: {script} needs `if __name__' in line
  assert 1 < found.stderr.count('runs') <= 3  # this process, and one try of two


_ENDLESS = """
import functools, itertools
from retrieval.store import executors
work = functools.partial(print, 'works', flush=True)
list(executors.Processes(2).run('job', work, itertools.repeat(())))
"""


@pytest.mark.slow
def test_a_killed_job_leaves_no_process_behind():
  command = [sys.executable, '-c', _ENDLESS]
  job = subprocess.Popen(command, stdout=subprocess.PIPE)
  assert job.stdout.readline() == b'works\n'
  job.kill()
  job.communicate(timeout=15)  # the workers have the pipe, too, until they end
