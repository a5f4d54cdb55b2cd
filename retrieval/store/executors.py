# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Executors of corpus jobs: this process, or processes of this machine.

A job is a function and its calls, one for each shard that is missing. The calls depend
on nothing but their arguments and run in any order, anywhere: `ray_cluster` runs them
on a cluster. The calls of a process that dies run again in another one.
"""

import abc
import collections
from collections.abc import Callable, Iterable, Iterator
import concurrent.futures
from concurrent.futures import process
import itertools
import multiprocessing
from multiprocessing import connection
import os
import pickle
import sys
import threading
from typing import Any

from absl import logging
import cloudpickle

from retrieval.store import children

MOST_DEATHS = 3


class JobError(RuntimeError):
  """The processes of one call died too often."""


class Executor(abc.ABC):
  """Runs the calls of a job."""

  @abc.abstractmethod
  def run(
    self, name: str, function: Callable[..., Any], calls: Iterable[tuple]
  ) -> Iterator[Any]:
    """Yield the results as the calls finish.

    Args:
      name: of the job, for messages.
      function: other processes get it pickled, once each; what they have to open
        themselves is `Lazy`.
      calls: arguments of each, taken one by one, no faster than processes take them.

    Raises:
      JobError: after the third death of the processes of one call.
      Exception: what a call raises.
    """


class Inline(Executor):
  """Runs calls in this process."""

  def run(self, name, function, calls) -> Iterator[Any]:
    """See `Executor`."""
    del name
    return itertools.starmap(function, calls)


class Share(Inline):
  """One of several processes that write a store together, each a share of it."""

  def __init__(self, index: int, count: int):
    self.leads = not index  # the process that publishes
    self.index, self.count = index, count


class Processes(Executor):
  """Runs calls in processes of this machine, which end with this one."""

  def __init__(self, count: int):
    self._count = count

  def run(self, name, function, calls) -> Iterator[Any]:
    """See `Executor`."""
    children.exit_if_spawned_anew()
    pickled, calls = cloudpickle.dumps(function), enumerate(calls)
    spawn = multiprocessing.get_context('spawn')
    waiting: list[tuple[int, tuple]] = []
    deaths = collections.Counter()
    while True:
      started, (ends, end) = spawn.Event(), spawn.Pipe(duplex=False)
      pool = concurrent.futures.ProcessPoolExecutor(
        self._count, spawn, _start, (pickled, started, ends)
      )
      pending: dict[concurrent.futures.Future, tuple[int, tuple]] = {}
      try:
        while True:
          # A call that was lost runs alone, to tell which one kills.
          room = 1 if deaths and waiting else 2 * self._count
          missing = max(0, room - len(pending) - len(waiting))
          waiting += itertools.islice(calls, missing)
          while waiting and len(pending) < room:
            future = pool.submit(_call, *waiting[0][1])
            pending[future] = waiting.pop(0)
          if not pending:
            return
          done, _ = concurrent.futures.wait(
            pending, return_when=concurrent.futures.FIRST_COMPLETED
          )
          # Of a broken pool, what was done before counts.
          for future in sorted(done, key=lambda x: x.exception() is not None):
            result = future.result()
            del pending[future]
            yield result
      except process.BrokenProcessPool:
        if not started.is_set():
          raise _start_error(name) from None
        waiting = [*pending.values(), *waiting]
        for call in pending.values():
          deaths[call[0]] += 1
          if deaths[call[0]] >= MOST_DEATHS:
            raise died_too_often(name, call) from None
          shard = _shard_of(call)
          logging.warning(
            '%s: a process died; shard %s runs again.', name, shard
          )
      finally:
        if pending:
          end.close()
        pool.shutdown(cancel_futures=True)


def _start_error(name: str) -> JobError:
  """Return the error of a job if no process could start."""
  path = getattr(sys.modules['__main__'], '__file__', 'the main module')
  return JobError(
    f"{name}: {path} needs `if __name__ == '__main__':` around what it does, as each "
    'process that it starts imports it first; or its processes were killed as they '
    'started.'
  )


def died_too_often(
  name: str,
  call: tuple[int, tuple],
  why: str = 'its process was killed, as happens for want of memory (fewer '
  'processes need less)',
) -> JobError:
  """Return the error of a job with a call whose process died three times."""
  return JobError(
    f'{name}: shard {_shard_of(call)} failed {MOST_DEATHS} times: '
    f'{" ".join(why.split())[-300:]}. The shards that are done stay; the same '
    'command continues.'
  )


def _shard_of(call: tuple[int, tuple]) -> Any:
  number, arguments = call
  return arguments[0] if arguments else number


def call_pickled(function: Callable[..., Any], arguments: tuple) -> Any:
  """Return the result of a call; raise errors that can be pickled."""
  try:
    return function(*arguments)
  except Exception as error:
    try:
      pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - of any class
      kind = ValueError if isinstance(error, ValueError) else RuntimeError
      raise kind(f'{type(error).__name__}: {error}') from error
    raise


_FUNCTION: list[Callable[..., Any]] = []  # of this process's job


def _start(pickled: bytes, started: Any, ends: Any) -> None:
  started.set()
  children.exit_with_parent()
  threading.Thread(target=_exit_after, args=(ends,), daemon=True).start()
  _FUNCTION[:] = [Lazy(cloudpickle.loads, pickled)]


def _exit_after(ends: connection.Connection) -> None:
  connection.wait([ends])
  os._exit(1)


def _call(*arguments) -> Any:
  return call_pickled(_FUNCTION[0], arguments)


class Lazy:
  """An object that each process opens anew when it first uses it.

  Where an object holds what cannot be pickled, such as compiled functions and open
  files, the workers of a job get it in this form. It has the attributes of a protocol
  without fitting it: annotations name it beside the protocol.
  """

  def __init__(self, open_object: Callable[..., Any], *arguments: Any):
    """Take a function of a module and its arguments."""
    self._made_of, self._opened = (open_object, *arguments), None

  def __reduce__(self):
    return Lazy, self._made_of

  def __getattr__(self, name: str) -> Any:
    if name.startswith('_'):
      raise AttributeError(name)
    return getattr(self._object(), name)

  def __call__(self, *arguments) -> Any:
    """Call the object."""
    return self._object()(*arguments)

  def _object(self) -> Any:
    if self._opened is None:
      open_object, *arguments = self._made_of
      self._opened = open_object(*arguments)
    return self._opened


def local(num_processes: int = 1) -> Executor:
  """Return the executor of this machine; one process is this one."""
  return Inline() if num_processes <= 1 else Processes(num_processes)
