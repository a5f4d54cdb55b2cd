# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks that search a large index in shards before it is published.

A small one is searched in this process.
"""

from collections.abc import Callable, Mapping
import functools
import pathlib

import numpy as np

from retrieval.searchers import base, exact, saved_vectors, sharded
from retrieval.store import executors, selected_rows

_FEW_ROWS = 1 << 22  # at most so many are searched in this process
_TASK_ROWS = 1 << 22  # that a task searches


def for_rows(
  executor: executors.Executor | None, num_rows: int
) -> executors.Executor:
  """Return the executor of tasks over rows: this process for few of them."""
  if executor is None or num_rows <= _FEW_ROWS:
    return executors.Inline()
  return executor


def searcher(
  folder: pathlib.Path,
  shards_in_memory: int,
  executor: executors.Executor | None,
) -> sharded.ShardedSearcher:
  """Open the shards of a plan; tasks ask those of a large one."""
  num_rows, _ = base.read_fields(folder)['shape']
  executor = for_rows(executor, num_rows)
  if isinstance(executor, executors.Inline):
    return sharded.ShardedSearcher.load(folder, shards_in_memory)
  found = _TaskSearcher.load(folder, shards_in_memory)
  found.executor = executor
  return found


class _TaskSearcher(sharded.ShardedSearcher):
  """A searcher whose shards are asked by tasks."""

  executor: executors.Executor
  by_tasks = True

  def _answers(self, asks, k, settings):
    set_up = functools.partial(_shard_task, self.path.absolute(), k, settings)
    yield from self.executor.run('search', set_up, asks)


def _shard_task(
  folder: pathlib.Path, k: int, settings: Mapping[str, int]
) -> Callable[[int, np.ndarray, np.ndarray], tuple[np.ndarray, sharded.Found]]:
  """Return a function that asks one shard."""
  opened = sharded.ShardedSearcher.load(folder)

  def ask(number, own, queries):
    shard = opened.open_shard(number)
    found = shard.search(queries, k, **settings)
    shard.close()
    return own, found

  return ask


class Oracle(exact.ExactSearcher):
  """Exact search of all rows of a plan; they stream, so that memory is bounded."""

  def __init__(
    self, folder: pathlib.Path, executor: executors.Executor | None = None
  ):
    """Take the folder of the plan; executor None is this process."""
    fields = base.read_fields(folder)
    vectors = saved_vectors.load(folder, fields)
    super().__init__(vectors, fields['metric'], resident_bytes=0, check=False)
    self._folder = folder.absolute()
    self._executor = for_rows(executor, self.num_vectors)
    self.by_tasks = not isinstance(self._executor, executors.Inline)

  def search(self, queries: np.ndarray, k: int) -> sharded.Found:
    """Find the k best rows of each query; ties go to the lower id."""
    if not self.by_tasks:
      return super().search(queries, k)
    set_up = functools.partial(_exact_task, self._folder, queries, k)
    lows = range(0, self.num_vectors, _TASK_ROWS)
    calls = (
      (number, low, min(low + _TASK_ROWS, self.num_vectors))
      for number, low in enumerate(lows)
    )
    best = base.nothing(len(queries), k)
    for found in self._executor.run('exact search', set_up, calls):
      best = sharded.merge(best, found, k)
    return base.pad(*best, k)


def _exact_task(
  folder: pathlib.Path, queries: np.ndarray, k: int
) -> Callable[[int, int, int], sharded.Found]:
  """Return a function that searches a range of rows."""
  fields = base.read_fields(folder)
  vectors = saved_vectors.load(folder, fields)

  def search(number: int, low: int, high: int) -> sharded.Found:
    del number
    rows, opened = range(low, high), saved_vectors.streamed(vectors)
    part = exact.ExactSearcher(
      selected_rows.SelectedRows(opened, rows),
      fields['metric'],
      resident_bytes=0,
      check=False,
    )
    shard = sharded.Shard(part, part, opened, rows, False)
    found = shard.search(queries, k)
    shard.close()
    return found

  return search
