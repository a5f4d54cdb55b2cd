# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Executors: results, bounds, errors, processes that die, stages that serve."""

import functools
import os
import pathlib
import signal

import numpy as np
import pytest

from retrieval import settings
from retrieval.store import executors, shards, store, tasks as tasks_lib

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


def adder(base):
  return lambda number: base + number


def fails_at_three():
  def task(number):
    if number == 3:
      raise ValueError(f'Task {number} of process {os.getpid()} failed.')
    return number

  return task


def kill_itself(i):
  os.kill(os.getpid(), signal.SIGKILL)


def fail(i):
  raise OSError(f'disk {i}')


def goes_wrong(how, folder, number, times):
  """Return tasks of which one goes wrong some times, and leaves a mark each time."""

  def task(i):
    seen = len([*pathlib.Path(folder).iterdir()])
    if i == number and seen < times:
      (pathlib.Path(folder) / f'{seen}').touch()
      how(i)
    return i

  return task


def bad_set_up():
  raise ValueError('no such model')


@pytest.mark.parametrize('count', [0, 1])
def test_one_process_works_in_place(count):
  executor = executors.local(count)
  found = executor.run('job', functools.partial(adder, 100), Calls(range(5)))
  assert list(found) == [100, 101, 102, 103, 104]
  assert list(executor.run('job', lambda: os.getpid, [()])) == [os.getpid()]
  assert list(executor.run('job', lambda: abs, [])) == []


def test_in_place_a_task_that_fails_ends_all():
  calls = Calls(range(9))
  found = executors.Inline().run('job', fails_at_three, calls)
  assert [next(found) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(ValueError, match='Task 3 of process'):
    next(found)
  assert calls.taken == 4


def test_processes_share_tasks_and_bad_input_reaches_the_caller_at_once():
  executor = executors.Processes(2)
  calls = Calls(range(20))
  found = []
  for result in executor.run('job', functools.partial(adder, 10), calls):
    found.append(result)
    assert calls.taken <= len(found) + 4
  assert sorted(found) == [*range(10, 30)]
  with pytest.raises(ValueError, match='Task 3 of process') as error:
    list(executor.run('job', fails_at_three, Calls(range(6))))
  assert str(os.getpid()) not in str(error.value)
  with pytest.raises(ValueError, match='no such model'):
    list(executor.run('job', bad_set_up, Calls(range(6))))


@pytest.mark.parametrize('how', [kill_itself, fail])
def test_a_task_runs_again_twice(tmp_path, how):
  set_up = functools.partial(goes_wrong, how, str(tmp_path), 4, 2)
  found = executors.Processes(2).run('job', set_up, Calls(range(9)))
  assert sorted(found) == [*range(9)]
  assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize(
  ('how', 'why'),
  [(kill_itself, 'was killed'), (fail, 'OSError: disk 4')],
)
def test_the_third_failure_of_a_task_names_it(tmp_path, how, why):
  set_up = functools.partial(goes_wrong, how, str(tmp_path), 4, 9)
  found, results = (
    executors.Processes(2).run('job', set_up, Calls(range(9))),
    set(),
  )
  with pytest.raises(
    tasks_lib.JobError, match=f'job: shard 4 failed 3 times.*{why}'
  ):
    for result in found:
      results.add(result)
  assert len([*tmp_path.iterdir()]) == 3
  # Of the other tasks none has to fail because of it.
  assert results >= {0, 1, 2, 3}


def build(path, executor, number=0, shards_of_it=5):
  """A store whose maker is a closure over something that cannot be pickled."""
  opened = open(os.devnull)  # noqa: SIM115 - a file cannot be pickled

  def make(i, progress):
    assert not opened.closed
    if progress:
      progress(2, 2)
    return {'x': np.arange(2) + 10 * i + number, 'pid': np.array([os.getpid()])}

  with opened:
    return shards.build_store(
      path,
      KIND,
      FIELDS | {'n': number},
      [2] * shards_of_it,
      make,
      executor=executor,
    )


def stage_of_two(folder, executor):
  """Builds one store, then another."""
  one = build(pathlib.Path(folder) / 'one', executor)
  two = build(
    pathlib.Path(folder) / 'two', executor, int(one.array('x')[0]) + 7
  )
  return one, two


def test_workers_make_all_stores_of_a_stage(tmp_path, capfd):
  stage = functools.partial(stage_of_two, str(tmp_path / 'two'))
  executor = executors.Processes(2, stage)
  made = stage_of_two(tmp_path / 'two', executor)
  executor.close()
  alone = stage_of_two(tmp_path / 'alone', None)
  pids = [{*found.array('pid')[:].tolist()} for found in made]
  assert os.getpid() not in pids[0] | pids[1]
  assert len(pids[0] | pids[1]) <= 2  # workers serve one store after the other
  for found, wanted in zip(made, alone, strict=True):
    np.testing.assert_array_equal(found.array('x')[:], wanted.array('x')[:])


def other_fields(folder, executor):
  return build(pathlib.Path(folder) / 'one', executor, number=os.getpid())


def test_a_worker_that_would_make_another_store_is_refused(tmp_path):
  executor = executors.Processes(2, functools.partial(other_fields, tmp_path))
  with pytest.raises(ValueError, match='would make another store .n: expected'):
    other_fields(tmp_path, executor)


def skips_a_store(folder, executor):
  """Builds a store that workers need before, but the driver has not."""
  if not isinstance(executor, executors.Processes):
    build(pathlib.Path(folder) / 'zero', executor)
  return build(pathlib.Path(folder) / 'one', executor)


def test_a_store_that_is_missing_before_is_named(tmp_path):
  executor = executors.Processes(2, functools.partial(skips_a_store, tmp_path))
  with pytest.raises(ValueError, match='zero: is not published'):
    skips_a_store(tmp_path, executor)


def times(factor):
  return lambda i, progress: {'x': np.arange(3) * factor * i}


def test_a_maker_that_can_be_pickled_needs_no_stage(tmp_path):
  found = shards.build_store(
    tmp_path / 'x',
    KIND,
    FIELDS,
    [3] * 4,
    times(5),
    executor=executors.Processes(2),
  )
  wanted = np.concatenate([np.arange(3) * 5 * i for i in range(4)])
  np.testing.assert_array_equal(found.array('x')[:], wanted)


def test_shares_of_one_store(tmp_path):
  done = []

  def make(i, _):
    done.append(i)
    return {'x': np.arange(3) + i}

  def share(index):
    return shards.build_store(
      tmp_path / 'x',
      KIND,
      FIELDS,
      [3] * 5,
      make,
      executor=executors.Share(index, 2),
    )

  assert share(1) is None and done == [1, 3]
  assert isinstance(share(0), store.Store) and done == [1, 3, 0, 2, 4]


def refuses_a_setting():
  def task(i):
    raise settings.SettingsError('size', i, 'at least 9')

  return task


class Unpicklable(OSError):
  """An error that cannot be made from its message alone."""

  def __init__(self, one, two):
    super().__init__(f'{one} {two}')


def raises_unpicklable():
  def task(i):
    raise Unpicklable('disk', i)

  return task


def test_errors_that_cannot_be_pickled_are_told():
  executor = executors.Processes(1)
  with pytest.raises(settings.SettingsError, match='size=7: expected at least'):
    list(executor.run('job', refuses_a_setting, [(7,)]))
  with pytest.raises(tasks_lib.JobError, match='Unpicklable: disk 7'):
    list(executor.run('job', raises_unpicklable, [(7,)]))


def test_processes_that_die_between_two_tasks_lose_none():
  executor = executors.Processes(2)
  found = []
  for result in executor.run(
    'job', functools.partial(adder, 0), Calls(range(30))
  ):
    found.append(result)
    if len(found) == 5:
      for child in [*executor._pool._processes.values()]:
        child.kill()
        child.join()
  assert sorted(found) == [*range(30)]
