# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Executors of corpus jobs: this process, processes of this machine.

A job is a list of tasks that depend on nothing but their arguments, one for each shard
that is still to be written. An executor runs them in any order and anywhere:
`ray_executor` on a cluster. A task whose worker dies, or which fails, runs again
elsewhere; after three failures the job ends. What was written stays.
"""

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
import concurrent.futures
from concurrent.futures import process
import functools
import multiprocessing
import pickle
import time
from typing import Any

import cloudpickle
import numpy as np

from retrieval import memory
from retrieval.store import (
  children,
  serving,
  store_writer,
  tasks as tasks_lib,
)

# Makes the function of a job's tasks, once in each worker.
SetUp = Callable[[], Callable[..., Any]]
Calls = Iterable[tuple]  # arguments of each task; the first is a shard
Progress = Callable[[int, int], None]  # (rows done, rows in all)
Make = Callable[[int, Progress | None], Mapping[str, np.ndarray]]


def shifted(
  progress: Progress | None, base: int, total: int
) -> Progress | None:
  """Return the progress of a part that begins at row `base` of `total`."""
  return progress and (lambda done, _: progress(base + done, total))


class Executor(abc.ABC):
  """Runs the tasks of a job."""

  @abc.abstractmethod
  def run(self, name: str, set_up: SetUp, calls: Calls) -> Iterator[Any]:
    """Yield the results as the tasks finish.

    Args:
      name: of the job, for messages.
      set_up: called once in each worker; other processes get it pickled.
      calls: taken one by one, no faster than workers take them.

    Raises:
      JobError: after the third failure of one task.
      ValueError: at once, where a task finds its input bad.
    """

  def write_shards(
    self,
    writer: store_writer.StoreWriter,
    counts: Mapping[int, int],
    make: Make,
    progress: Progress | None,
  ) -> bool:
    """Make and write shards of a store in this process.

    Args:
      counts: rows of each shard that is missing, for the progress.
      make: (shard, progress of the shard) -> arrays of the shard.

    Returns:
      Whether the store can be published; other processes may have work left.
    """
    total, done = sum(counts.values()), 0
    for i, rows in counts.items():
      writer.write(i, make(i, shifted(progress, done, total)))
      done += rows
    return True


Executor.register(serving.Serving)  # a worker's


class Inline(Executor):
  """Runs tasks in this process; an error ends the job at once."""

  def run(self, name: str, set_up: SetUp, calls: Calls) -> Iterator[Any]:
    """See `Executor`."""
    del name
    task = set_up()
    for arguments in calls:
      yield task(*arguments)


class Share(Inline):
  """One of several processes that write a store together, each a share of it."""

  def __init__(self, index: int, count: int):
    self.leads = not index  # the process that publishes
    self._index, self._count = index, count

  def write_shards(self, writer, counts, make, progress) -> bool:
    """See `Executor`; takes every `count`-th of the missing shards."""
    mine = {i: n for i, n in counts.items() if i % self._count == self._index}
    super().write_shards(writer, mine, make, progress)
    return all(writer.has(i) for i in counts)


class Remote(Executor):
  """Runs tasks in other processes, which call a stage anew to make shards."""

  def __init__(self, stage: serving.Stage | None = None):
    """Take the stage that builds the stores; without one, makers are pickled.

    Most makers are closures over opened files and models, which cannot be pickled.
    A worker calls the stage with an executor that serves these closures.
    """
    self.stage = stage
    self._serve = functools.partial(serving.serve, stage)

  def close(self) -> None:  # noqa: B027
    """End the workers, which otherwise wait for the next store of the stage."""

  def write_shards(self, writer, counts, make, progress) -> bool:
    """See `Executor`; a single shard is made in this process."""
    if len(counts) < 2:
      return super().write_shards(writer, counts, make, progress)
    if self.stage is None:
      place = (writer.path, writer.kind, writer.fields)
      set_up = functools.partial(_writer_of, place, make)
      store = ()
    else:
      set_up = self._serve
      store = (writer.path, writer.fields)
    total, done = sum(counts.values()), 0
    for i in self.run(writer.path.name, set_up, ((i, *store) for i in counts)):
      done += counts[i]
      if progress:
        progress(done, total)
    return True


def _writer_of(place: tuple, make: Make) -> Callable[[int], int]:
  """Return what makes and writes a shard, and returns its number."""
  writer = store_writer.StoreWriter(*place)

  def write(shard: int) -> int:
    writer.write(shard, make(shard, None))
    return shard

  return write


class Processes(Remote):
  """Runs tasks in processes of this machine, which end with this one."""

  def __init__(self, count: int, stage: serving.Stage | None = None):
    """Take the number of processes.

    Raises:
      settings.SettingsError: for more than memory can hold.
    """
    super().__init__(stage)
    memory.check_processes('num_processes', count)
    self._count = count
    self._pool: concurrent.futures.Executor | None = None
    self._set_up: SetUp | None = None

  def run(self, name: str, set_up: SetUp, calls: Calls) -> Iterator[Any]:
    """See `Executor`."""
    tasks = tasks_lib.Tasks(name, iter(calls))
    try:
      while not tasks.ended:
        yield from self._drain(self._processes(set_up), tasks)
    finally:
      if not tasks.ended:
        self._stop()
      elif self.stage is None:
        self.close()
    tasks.summary(self._count)

  def _processes(self, set_up: SetUp) -> concurrent.futures.Executor:
    """Return processes that have set the job up; those of the job before do."""
    if set_up is not self._set_up:
      self.close()
    if self._pool is None:
      self._set_up = set_up
      self._pool = concurrent.futures.ProcessPoolExecutor(
        self._count,
        mp_context=multiprocessing.get_context('spawn'),
        initializer=_start,
        initargs=(cloudpickle.dumps(set_up),),
      )
    return self._pool

  def close(self) -> None:
    """End the processes, once they have done what they do."""
    if self._pool is not None:
      self._pool.shutdown(cancel_futures=True)
      self._pool = None

  def _stop(self) -> None:
    """End the processes at once; a shard that they write is a draft."""
    if self._pool is not None:
      for child in list((self._pool._processes or {}).values()):
        child.kill()
      self.close()

  def _drain(self, pool, tasks: tasks_lib.Tasks) -> Iterator[Any]:
    """Run tasks until none is left, or new processes have to go on.

    These are needed where a process has died, and where a task has failed twice:
    what is wrong may be the process.
    """
    pending: dict[concurrent.futures.Future, tasks_lib.Task] = {}
    broken = False
    while True:
      # Only of a task that runs alone is it known that it kills its process.
      most = 1 if tasks.again else 2 * self._count
      while len(pending) < most and (task := tasks.next()):
        try:
          pending[pool.submit(_timed, *task.arguments)] = task
        except process.BrokenProcessPool:
          tasks.interrupted(task)
          broken = True
          break
      if not pending and not broken:
        tasks.ended = True
        return
      finished, _ = concurrent.futures.wait(
        pending, return_when=concurrent.futures.FIRST_COMPLETED
      )
      failed = {x for x in finished if x.exception() is not None}
      for future in finished - failed:
        result, sec = future.result()
        tasks.done(pending.pop(future), sec, 'this machine', self._count)
        yield result
      broken = broken or any(
        isinstance(x.exception(), process.BrokenProcessPool) for x in failed
      )
      anew = broken or any(pending[x].failures for x in failed)
      for future in () if broken else failed:
        tasks.failed(pending.pop(future), future.exception())
      if anew:
        self._stop()
        for task in pending.values():
          tasks.failed(task, tasks_lib.KILLED) if broken else tasks.interrupted(
            task
          )
        return


class Worker:
  """The task of a job in a worker process, or the error of its set-up."""

  def __init__(self, pickled: bytes):
    """Set the job up from its pickled `SetUp`."""
    self.error: Exception | None = None
    try:
      self._task = cloudpickle.loads(pickled)()
    except Exception as error:  # noqa: BLE001 - the first task tells it
      self.error = error

  def __call__(self, *arguments) -> tuple[Any, float]:
    """Run a task; return its result and its seconds."""
    if self.error is not None:
      raise _portable(self.error)
    start = time.monotonic()
    try:
      result = self._task(*arguments)
    except Exception as error:
      raise _portable(error) from error
    return result, time.monotonic() - start


def _portable(error: Exception) -> Exception:
  """Return an error that can be raised in another process."""
  try:
    pickle.loads(pickle.dumps(error))
  except Exception:  # noqa: BLE001 - of any class
    kind = ValueError if isinstance(error, ValueError) else RuntimeError
    return kind(f'{type(error).__name__}: {error}')
  return error


_WORKER: list[Worker] = []  # of this process


def _start(pickled: bytes) -> None:
  children.exit_with_parent()
  _WORKER[:] = [Worker(pickled)]


def _timed(*arguments) -> tuple[Any, float]:
  return _WORKER[0](*arguments)


def local(num_processes: int = 1) -> Executor:
  """Return the executor of this machine with a number of processes.

  One process is this one.
  """
  return Inline() if num_processes <= 1 else Processes(num_processes)
