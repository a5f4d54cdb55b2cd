# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks in processes, threads and in place: results, bounds and errors."""

import concurrent.futures
import os
import threading

import pytest

from retrieval.store import shards

_WORKER = {}


def setup(base):
  _WORKER['base'] = base


def add(number):
  return _WORKER['base'] + number


def fail_at_three(number):
  if number == 3:
    raise ValueError(f'Task {number} of process {os.getpid()} failed.')
  return number


class Calls:
  """Arguments of tasks, counted as they are taken."""

  def __init__(self, numbers):
    self._numbers, self.taken = numbers, 0

  def __iter__(self):
    for number in self._numbers:
      self.taken += 1
      yield (number,)


@pytest.mark.parametrize('num_processes', [0, 1])
@pytest.mark.parametrize('max_pending', [0, 2, 99])
def test_one_process_works_in_place(num_processes, max_pending):
  with shards.start(num_processes, setup, (100,)) as pool:
    found = shards.run(pool, add, Calls(range(5)), max_pending)
    assert sorted(found) == [100, 101, 102, 103, 104]
    assert list(shards.run(pool, os.getpid, [()], 1)) == [os.getpid()]
    assert list(shards.run(pool, add, [], 2)) == []


def test_in_place_a_task_that_fails_ends_all():
  calls = Calls(range(9))
  with shards.start(1, setup, (0,)) as pool:
    found = shards.run(pool, fail_at_three, calls, 1)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match='Task 3 of process'):
      next(found)
  assert calls.taken == 4


def test_processes_are_set_up_and_their_errors_reach_the_caller():
  with shards.start(2, setup, (10,)) as pool:
    assert sorted(shards.run(pool, add, Calls(range(6)), 3)) == [*range(10, 16)]
    with pytest.raises(ValueError, match='Task 3 of process') as error:
      list(shards.run(pool, fail_at_three, Calls(range(6)), 2))
  assert str(os.getpid()) not in str(error.value)


@pytest.mark.parametrize('order', [(2, 3, 1, 0), (1, 0, 2, 3)])
def test_results_come_in_the_order_in_which_tasks_finish(order):
  finish = [threading.Event() for _ in order]

  def task(number):
    assert finish[number].wait(10)
    return number

  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    results = shards.run(pool, task, Calls(range(4)), 4)
    for number in order:
      finish[number].set()
      assert next(results) == number


def test_no_more_calls_are_taken_than_may_be_pending():
  calls = Calls(range(20))
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    seen = []
    for result in shards.run(pool, abs, calls, 3):
      seen.append(result)
      assert calls.taken <= len(seen) + 3
  assert sorted(seen) == [*range(20)]
