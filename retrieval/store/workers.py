# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Worker processes that write the shards of a store."""

from collections.abc import Callable, Iterable, Iterator
import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import threading
from typing import Any


def start(
  num_processes: int, setup: Callable, arguments: tuple
) -> concurrent.futures.Executor:
  """Start processes that end with this one, and call `setup` in each.

  With one process, tasks run in this process instead. The executor is to be
  used as a context manager.
  """
  if num_processes <= 1:
    return _Inline(setup, arguments)
  return concurrent.futures.ProcessPoolExecutor(
    num_processes,
    mp_context=multiprocessing.get_context('spawn'),
    initializer=_start,
    initargs=(setup, arguments),
  )


def run(
  executor: concurrent.futures.Executor,
  task: Callable[..., int],
  calls: Iterable[tuple],
  max_pending: int,
) -> Iterator[int]:
  """Run a task for each call and yield the results as the tasks finish.

  At most `max_pending` calls are taken before one of them is done.
  """
  pending: set[concurrent.futures.Future[Any]] = set()
  for arguments in calls:
    pending.add(executor.submit(task, *arguments))
    while len(pending) >= max(1, max_pending):
      finished, pending = concurrent.futures.wait(
        pending, return_when=concurrent.futures.FIRST_COMPLETED
      )
      yield from (future.result() for future in finished)
  for future in concurrent.futures.as_completed(pending):
    yield future.result()


def _start(setup: Callable, arguments: tuple) -> None:
  exit_with_parent()
  setup(*arguments)


def exit_with_parent() -> None:
  """End this process once its parent has ended, even if it was killed."""
  threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
  multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
  os._exit(1)


class _Inline(concurrent.futures.Executor):
  """Runs tasks at once in this process, behind the pool's interface."""

  def __init__(self, setup: Callable, arguments: tuple):
    setup(*arguments)

  def submit(self, fn, /, *args, **kwargs):
    future = concurrent.futures.Future()
    future.set_result(fn(*args, **kwargs))
    return future
