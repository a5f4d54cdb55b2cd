# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores that several processes write shard by shard."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import concurrent.futures
import multiprocessing
import os
from typing import Any

import numpy as np

from retrieval import memory
from retrieval.store import children, store, store_writer

Progress = Callable[[int, int], None]  # (rows done, rows in all)


def shifted(
  progress: Progress | None, base: int, total: int
) -> Progress | None:
  """Return the progress of a part that begins at row `base` of `total`."""
  return progress and (lambda done, _: progress(base + done, total))


def build_store(
  path: str | os.PathLike,
  kind: str,
  fields: Mapping[str, Any],
  counts: Sequence[int],
  make: Callable[[int, Progress | None], Mapping[str, np.ndarray]],
  *,
  process_index: int = 0,
  process_count: int = 1,
  progress: Progress | None = None,
  meta: Mapping[str, Any] | None = None,
) -> store.Store | None:
  """Write the missing shards of a store and publish it when all are written.

  Each process writes every `process_count`-th missing shard.

  Args:
    fields: JSON fields that determine every byte of the store.
    make: (shard, progress of the shard) -> arrays of the shard.
    meta: further JSON facts of the published store.

  Returns:
    The published store, or None while other processes still have work.
  """
  writer = store_writer.StoreWriter(path, kind, fields)
  if writer.published:
    return store.Store.open(path, kind, fields)
  todo = writer.missing(len(counts))
  mine = [i for i in todo if i % process_count == process_index]
  total, done = sum(counts[i] for i in mine), 0
  for i in mine:
    writer.write(i, make(i, shifted(progress, done, total)))
    done += counts[i]
  if writer.missing(len(counts)):
    return None
  return writer.publish(len(counts), meta)


def write_all(
  writer: store_writer.StoreWriter,
  num_processes: int,
  setup: Callable[..., Callable[..., tuple[Mapping[str, np.ndarray], int]]],
  arguments: tuple,
  calls: Iterable[tuple],
) -> Iterator[int]:
  """Write shards in new processes; yield a number for each as it is done.

  Args:
    setup: called with `arguments` in each process; returns the maker of a
      shard's arrays and of the number to yield.
    calls: (shard, arguments of the maker) of each shard to write.
  """
  place = (writer.path, writer.kind, writer.fields)
  with start(num_processes, _open, (*place, setup, arguments)) as pool:
    yield from run(pool, _write, calls, 2 * num_processes)


_WORKER = {}


def _open(path, kind, fields, setup, arguments) -> None:
  writer = store_writer.StoreWriter(path, kind, fields)
  _WORKER.update(writer=writer, make=setup(*arguments))


def _write(shard: int, *arguments) -> int:
  arrays, number = _WORKER['make'](*arguments)
  _WORKER['writer'].write(shard, arrays)
  return number


def start(
  num_processes: int, setup: Callable, arguments: tuple
) -> concurrent.futures.Executor:
  """Start processes that end with this one, and call `setup` in each.

  With one process, tasks run in this process instead. The executor is to be
  used as a context manager.
  """
  if num_processes <= 1:
    return _Inline(setup, arguments)
  memory.check_processes('num_processes', num_processes)
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
  children.exit_with_parent()
  setup(*arguments)


class _Inline(concurrent.futures.Executor):
  """Runs tasks at once in this process, behind the pool's interface."""

  def __init__(self, setup: Callable, arguments: tuple):
    setup(*arguments)

  def submit(self, fn, /, *args, **kwargs):
    future = concurrent.futures.Future()
    future.set_result(fn(*args, **kwargs))
    return future
