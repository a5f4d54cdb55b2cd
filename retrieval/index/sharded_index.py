# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds an index in shards: a plan, then each shard alone, in any process.

  folder = sharded_index.plan('runs/x/index', vectors, fields)
  for number in sharded_index.missing(folder):
    sharded_index.build_shard(folder, number)    # here, or on another machine

`index.build_index` does this with an executor, measures the whole and publishes it. A
killed build continues at its first missing shard. S shards.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import functools
import json
import os
import pathlib
import shutil
from typing import Any

from absl import logging
import numpy as np

from retrieval.index import recall_check
from retrieval.searchers import (
  base,
  codes,
  exact,
  partition,
  saved_vectors,
  scann,
  sharded,
)
from retrieval.store import (
  drafts,
  executors,
  selected_rows,
  sharded_array,
  space,
  store,
)

_PARTS = 'parts.npy'  # [n] uint16 shard of each row, while shards are built
_HEADER = {'descr': '<u2', 'fortran_order': False}
_READ_ROWS = 1 << 24  # of the shards of rows, at a time
# A task finds the nearest shards of so many blocks of rows, or searches so many rows.
_TASK_BLOCKS, _TASK_ROWS = 256, 1 << 22


def building(
  path: str | os.PathLike, fields: Mapping[str, Any]
) -> pathlib.Path:
  """Return the folder in which the shards of an index at `path` are built."""
  path = pathlib.Path(path)
  key = store.fingerprint(dict(fields))
  return path.with_name(f'{path.name}.partial-{key[:12]}')


def plan(
  path: str | os.PathLike,
  vectors,
  fields: Mapping[str, Any],
  executor: executors.Executor | None = None,
) -> pathlib.Path:
  """Decide which rows belong to which shard, or return what was decided before.

  Args:
    path: of the index.
    vectors: [n, d] array, memory map or sharded array. One that is no published
      store is copied.
    fields: JSON fields of the index, those of `index.json`.
    executor: where the nearest centroids of rows are found; None is this process.

  Returns:
    Folder of the shards.
  """
  folder = building(path, fields)
  if not folder.exists():
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = drafts.beside(folder)
    draft.mkdir()
    try:
      with space.explained(folder):
        _write_plan(draft, vectors, fields, executor or executors.Inline())
      store.publish_folder(draft, folder)
    finally:
      shutil.rmtree(draft, ignore_errors=True)
  return folder


def _write_plan(draft: pathlib.Path, vectors, fields, executor) -> None:
  num_rows, num_shards = int(vectors.shape[0]), fields['shards']
  saved = saved_vectors.save(draft, vectors)
  if fields['shard_by'] == 'centroid':
    sizes = _partition(draft, saved, num_shards, executor)
  else:
    sizes = np.diff(np.arange(num_shards + 1) * num_rows // num_shards)
  plan = {
    'name': sharded.ShardedSearcher.name,
    'metric': fields['metric'],
    'kind': fields['searcher'],
    'by': fields['shard_by'],
    'shards_to_search': fields['shards_to_search'],
    'scann': fields['scann'],
    'sizes': [int(size) for size in sizes],
    **saved,
  }
  (draft / 'searcher.json').write_text(json.dumps(plan) + '\n')


def _partition(
  draft: pathlib.Path, saved, num_shards: int, executor: executors.Executor
) -> np.ndarray:
  """Write the centroids and the shard of each row; return the shards' sizes."""
  vectors = saved_vectors.streamed(saved_vectors.load(draft, saved))
  num_rows = len(vectors)
  centers = partition.centroids(vectors, num_shards)
  np.save(draft / sharded.CENTROIDS, centers)
  saved_vectors.release(vectors)
  step = partition.block_rows(centers)
  # Others see the folder under its whole path.
  set_up = functools.partial(_wisher, draft.absolute(), saved)
  lows = range(0, num_rows, _TASK_BLOCKS * step)
  found = _run(executor, 'partition', set_up, lows)

  def more(ids):
    rows = np.asarray(vectors[ids], np.float32)
    saved_vectors.release(vectors)
    return partition.order(rows, centers)

  sizes = np.zeros(num_shards, np.int64)
  with open(draft / _PARTS, 'wb') as f:
    np.lib.format.write_array_header_1_0(f, _HEADER | {'shape': (num_rows,)})
    blocks = _in_order(found)
    for parts in partition.assign(blocks, num_rows, num_shards, more):
      sizes += np.bincount(parts, minlength=num_shards)
      f.write(parts.view(np.uint8))
  return sizes


def _run(
  executor: executors.Executor, name: str, set_up: executors.SetUp, lows: range
) -> Iterator[Any]:
  """Run a task for rows from each low on; a single one in this process."""
  if len(lows) < 2:
    executor = executors.Inline()
  return executor.run(name, set_up, ((low,) for low in lows))


def _wisher(
  folder: pathlib.Path, saved
) -> Callable[[int], tuple[int, list[np.ndarray]]]:
  """Return what finds the nearest shards of a task's rows, block by block."""
  vectors = saved_vectors.streamed(saved_vectors.load(folder, saved))
  centers = np.load(folder / sharded.CENTROIDS)
  step = partition.block_rows(centers)

  def wish(first: int) -> tuple[int, list[np.ndarray]]:
    last, wishes = min(len(vectors), first + _TASK_BLOCKS * step), []
    for low in range(first, last, step):
      rows = np.asarray(vectors[low : min(low + step, last)], np.float32)
      saved_vectors.release(vectors)
      base.check_vectors(rows, ids=range(low, low + len(rows)))
      nearest = partition.order(rows, centers, few=partition.WISHES)
      wishes.append(nearest.astype(np.uint16))
    return first, wishes

  return wish


def _in_order(
  found: Iterable[tuple[int, list[np.ndarray]]],
) -> Iterator[np.ndarray]:
  """Yield the blocks of tasks, which end in any order, by their first rows."""
  early, low = {}, 0
  for first, blocks in found:
    early[first] = blocks
    while low in early:
      for block in early.pop(low):
        yield block
        low += len(block)


def missing(folder: pathlib.Path) -> list[int]:
  """Return the numbers of the shards that are not built yet."""
  count = len(base.read_fields(folder)['sizes'])
  return [
    i for i in range(count) if not (folder / sharded.shard_name(i)).is_dir()
  ]


def build_shard(folder: str | os.PathLike, number: int) -> None:
  """Build and publish one shard of a plan, unless it is there.

  Several processes may build shards of one plan; of one shard the first version
  counts. Exact and int8 shards have the same bytes each time.

  Raises:
    ValueError: naming the shard, for vectors that are not finite or settings that
      do not fit its size.
  """
  folder = pathlib.Path(folder)
  target = folder / sharded.shard_name(number)
  if target.is_dir():
    return
  fields = base.read_fields(folder)
  rows = sharded.bounds(fields['sizes'], number)
  draft = drafts.beside(target)
  vectors = saved_vectors.load(folder, fields)
  draft.mkdir()
  try:
    with space.explained(target):
      if fields['by'] == 'centroid':
        rows = _rows_of(folder / _PARTS, number)
        np.save(draft / sharded.ROWS, rows)
      _write_shard(draft, vectors, rows, fields)
    store.publish_folder(draft, target)
  except ValueError as e:
    count = len(fields['sizes'])
    raise ValueError(f'Shard {number} of {count} in {folder}: {e}') from None
  finally:
    saved_vectors.close(vectors)
    shutil.rmtree(draft, ignore_errors=True)


def _rows_of(file: pathlib.Path, number: int) -> np.ndarray:
  """Return the rows [n] of a shard."""
  parts = sharded_array.open_npy(file)
  lows = range(0, len(parts), _READ_ROWS)
  return np.concatenate(
    [
      low + np.flatnonzero(parts[low : low + _READ_ROWS] == number)
      for low in lows
    ]
  )


def _write_shard(draft: pathlib.Path, vectors, rows, fields) -> None:
  part = selected_rows.SelectedRows(vectors, rows)
  kind, metric = fields['kind'], fields['metric']
  if kind == 'scann' and len(rows) < scann.MIN_ROWS:
    kind = 'exact'
  base.check_vectors(part, ids=rows)
  if kind == 'scann':
    config = scann.ScannConfig(**fields['scann'])
    scann.ScannSearcher.build(part, metric, config).save(draft)
  elif kind == 'int8':
    codes.write(draft, part, metric)
  else:
    exact_fields = {'name': 'exact', 'metric': metric}
    (draft / 'searcher.json').write_text(json.dumps(exact_fields) + '\n')


def _builder(folder: pathlib.Path) -> Callable[[int], int]:
  def build_one(number: int) -> int:
    build_shard(folder, number)
    return number

  return build_one


def build(
  path: str | os.PathLike,
  vectors,
  fields: Mapping[str, Any],
  shards_in_memory: int,
  executor: executors.Executor | None = None,
) -> sharded.ShardedSearcher:
  """Plan an index and build its missing shards; executor None is this process."""
  executor = executor or executors.Inline()
  folder = plan(path, vectors, fields, executor)
  drafts.remove_dead(folder, recursive=False)
  for other in folder.parent.glob(f'{pathlib.Path(path).name}.partial-*'):
    if other != folder:
      logging.warning(
        '%s: unfinished index of other settings; not used.', other
      )
  todo = missing(folder)
  # Others see the folder under its whole path.
  set_up = functools.partial(_builder, folder.absolute())
  calls = ((number,) for number in todo)
  for done, number in enumerate(executor.run('index', set_up, calls), 1):
    logging.info('Shard %d is built, %d of %d.', number, done, len(todo))
  searcher = sharded.ShardedSearcher.load(folder, shards_in_memory)
  if searcher.num_vectors > _TASK_ROWS and not isinstance(
    executor, executors.Inline
  ):
    searcher = _Asked.load(folder, shards_in_memory)
    searcher.executor = executor
  return searcher


class _Asked(sharded.ShardedSearcher):
  """A searcher to be measured, whose shards are asked by tasks."""

  executor: executors.Executor

  def _answers(self, asks, k, settings):
    set_up = functools.partial(_asker, self.path.absolute(), k, settings)
    yield from self.executor.run('recall', set_up, asks)


def _asker(
  folder: pathlib.Path, k: int, settings: Mapping[str, int]
) -> Callable[..., tuple[np.ndarray, sharded.Found]]:
  """Return what asks a shard, as `ShardedSearcher` does."""
  searcher = sharded.ShardedSearcher.load(folder)

  def ask(number, own, queries):
    shard = searcher.open_shard(number)
    found = shard.search(queries, k, **settings)
    shard.close()
    return own, found

  return ask


class Oracle(exact.ExactSearcher):
  """Exact search of all rows of a plan; tasks search the ranges of a large one."""

  def __init__(
    self, folder: pathlib.Path, executor: executors.Executor | None = None
  ):
    """Take the folder of the plan; executor None is this process."""
    fields = base.read_fields(folder)
    vectors = saved_vectors.load(folder, fields)
    # It streams, as shards have no other bound.
    super().__init__(vectors, fields['metric'], resident_bytes=0, check=False)
    self._folder = folder.absolute()
    self._executor = executor or executors.Inline()

  def search(self, queries: np.ndarray, k: int) -> sharded.Found:
    """Find the k best rows of each query; ties go to the lower id."""
    lows = range(0, self.num_vectors, _TASK_ROWS)
    if len(lows) < 2:
      return super().search(queries, k)
    set_up = functools.partial(_ranger, self._folder, queries, k)
    best = base.nothing(len(queries), k)
    for found in _run(self._executor, 'exact search', set_up, lows):
      best = sharded.merge(best, found, k)
    return base.pad(*best, k)


def _ranger(
  folder: pathlib.Path, queries: np.ndarray, k: int
) -> Callable[[int], sharded.Found]:
  """Return exact search of the rows from `low` on."""
  fields = base.read_fields(folder)
  vectors = saved_vectors.streamed(saved_vectors.load(folder, fields))

  def search(low: int) -> sharded.Found:
    rows = range(low, min(low + _TASK_ROWS, len(vectors)))
    part = exact.ExactSearcher(
      selected_rows.SelectedRows(vectors, rows),
      fields['metric'],
      resident_bytes=0,
      check=False,
    )
    shard = sharded.Shard(part, part, vectors, rows, False)
    found = shard.search(queries, k)
    shard.close()
    return found

  return search


def report(
  searcher: sharded.ShardedSearcher, check: recall_check.RecallCheck
) -> dict[str, Any]:
  """Return what a search of few shards loses, and the memory of each kind of index.

  Returns:
    agreement_with_all_shards: share of the best rows that asking all shards finds;
      only where few are asked.
    memory_bytes_per_vector: in memory, for each vector of an open shard.
    memory_gb_per_billion: the same for the other kinds; a byte a vector is a
      gigabyte a billion.
  """
  found = {}
  if 0 < searcher.shards_to_search < searcher.num_shards:
    few, _ = check.answer(searcher)
    every, _ = check.answer(searcher, shards_to_search=searcher.num_shards)
    agreement = recall_check.agreement_with_exact(few, every)
    found['agreement_with_all_shards'] = round(agreement, 4)
  d = searcher.dimension
  table = {'exact': 0.0, 'int8': d + 4.0}
  for rescore in ('none', 'int8', 'bfloat16', 'float32'):
    config = scann.ScannConfig(rescore=rescore)
    size = scann.expected_bytes(1000, d, config)[1] / 1000
    table[f'scann, rescore {rescore}'] = size
  return found | {
    'memory_bytes_per_vector': round(searcher.bytes_in_memory, 1),
    'memory_gb_per_billion': {k: round(v, 1) for k, v in table.items()},
  }
