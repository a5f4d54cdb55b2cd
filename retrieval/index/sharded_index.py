# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds an index in shards: a plan, then each shard alone, in any process.

  folder = sharded_index.plan('runs/x/index', vectors, fields)
  for number in sharded_index.missing(folder):
    sharded_index.build_shard(folder, number)    # here, or on another machine

`index.build_index` does this with an executor, measures the whole and publishes it. A
killed build continues with what is missing. S shards.
"""

from collections.abc import Callable, Iterator, Mapping
import functools
import json
import os
import pathlib
import shutil
from typing import Any

from absl import logging
import numpy as np

from retrieval.searchers import (
  base,
  codes,
  partition,
  recall_check,
  saved_vectors,
  scann,
  search_tasks,
  sharded,
)
from retrieval.store import (
  drafts,
  executors,
  locks,
  selected_rows,
  sharded_array,
  store,
)

_PARTS = 'parts.npy'  # [n] uint16 shard of each row, while shards are built
_HEADER = {'descr': '<u2', 'fortran_order': False}
_READ_ROWS = 1 << 24  # of _PARTS, at a time
_NEAREST = (
  'nearest-{}.npy'  # [n, W] uint16 nearest shards of the rows of a task
)
_TASK_BLOCKS = 64  # blocks of rows of such a task


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
    executor: where the nearest centroids of many rows are found; None is this
      process.

  Returns:
    Folder of the shards.
  """
  folder = building(path, fields)
  begun = folder.with_name(f'{folder.name}-begun')
  folder.parent.mkdir(parents=True, exist_ok=True)
  with locks.hold(folder.with_name(f'.{pathlib.Path(path).name}.plan.lock')):
    if folder.exists():
      return folder
    if not begun.exists():
      _begin(begun, vectors, fields)
    if base.read_fields(begun)['sizes'] is None:
      _partition(begun, executor)
    for file in begun.glob(_NEAREST.format('*')):
      file.unlink()
    store.publish_folder(begun, folder)
  return folder


def _begin(begun: pathlib.Path, vectors, fields) -> None:
  draft = drafts.beside(begun)
  draft.mkdir()
  try:
    _write_plan(draft, vectors, fields)
    store.publish_folder(draft, begun)
  finally:
    shutil.rmtree(draft, ignore_errors=True)


def _write_plan(draft: pathlib.Path, vectors, fields) -> None:
  """Write what tasks need; the sizes of shards by centroid are found later."""
  num_rows, num_shards = int(vectors.shape[0]), fields['shards']
  saved = saved_vectors.save(draft, vectors)
  if fields['shard_by'] == 'centroid':
    sizes = None
    rows = saved_vectors.streamed(saved_vectors.load(draft, saved))
    centers = partition.centroids(rows, num_shards)
    np.save(draft / sharded.CENTROIDS, centers)
    saved_vectors.release(rows)
  else:
    ends = np.arange(num_shards + 1) * num_rows // num_shards
    sizes = np.diff(ends).tolist()
  plan = {
    'name': sharded.ShardedSearcher.name,
    'metric': fields['metric'],
    'kind': fields['searcher'],
    'by': fields['shard_by'],
    'shards_to_search': fields['shards_to_search'],
    'scann': fields['scann'],
    'sizes': sizes,
    **saved,
  }
  (draft / 'searcher.json').write_text(json.dumps(plan) + '\n')


def _partition(
  folder: pathlib.Path, executor: executors.Executor | None
) -> None:
  """Write the shard of each row, and the sizes of the shards into the plan.

  Tasks write the nearest shards of their rows; what is written stays. Then this
  process places the rows in order.
  """
  fields = base.read_fields(folder)
  centers = np.load(folder / sharded.CENTROIDS)
  num_rows, num_shards = fields['shape'][0], len(centers)
  step = partition.block_rows(centers)
  lows = range(0, num_rows, _TASK_BLOCKS * step)
  files = [folder / _NEAREST.format(number) for number in range(len(lows))]
  calls = (
    (number, low, min(low + lows.step, num_rows))
    for number, low in enumerate(lows)
    if not files[number].exists()
  )
  executor = search_tasks.for_rows(executor, num_rows)
  set_up = functools.partial(_nearest_task, folder.absolute())
  for _ in executor.run('nearest shards', set_up, calls):
    pass

  def blocks() -> Iterator[np.ndarray]:
    for file in files:
      found = sharded_array.open_npy(file)
      for low in range(0, len(found), step):
        yield found[low : low + step]

  vectors = saved_vectors.load(folder, fields)

  def all_nearest(ids: np.ndarray) -> np.ndarray:
    rows = np.asarray(saved_vectors.streamed(vectors)[ids], np.float32)
    saved_vectors.release(vectors)
    return partition.order(rows, centers)

  sizes = np.zeros(num_shards, np.int64)
  with store.open_atomically(folder / _PARTS) as f:
    np.lib.format.write_array_header_1_0(f, _HEADER | {'shape': (num_rows,)})
    for parts in partition.assign(blocks(), num_rows, num_shards, all_nearest):
      sizes += np.bincount(parts, minlength=num_shards)
      f.write(parts.view(np.uint8))
  fields['sizes'] = sizes.tolist()
  store.write_atomically(folder / 'searcher.json', json.dumps(fields) + '\n')


def _nearest_task(folder: pathlib.Path) -> Callable[[int, int, int], int]:
  """Return a function that writes the nearest shards of the rows of a task."""
  vectors = saved_vectors.load(folder, base.read_fields(folder))
  centers = np.load(folder / sharded.CENTROIDS)
  step = partition.block_rows(centers)
  few = min(partition.NUM_NEAREST, len(centers))

  def write(number: int, first: int, last: int) -> int:
    with store.open_atomically(folder / _NEAREST.format(number)) as f:
      shape = {'shape': (last - first, few)}
      np.lib.format.write_array_header_1_0(f, _HEADER | shape)
      for low in range(first, last, step):
        high = min(low + step, last)
        rows = np.asarray(saved_vectors.streamed(vectors)[low:high], np.float32)
        base.check_vectors(rows, ids=range(low, high))
        nearest = partition.order(rows, centers, few=few)
        f.write(np.ascontiguousarray(nearest, np.uint16).view(np.uint8))
        saved_vectors.release(vectors)
    return number

  return write


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
  found = [
    low + np.flatnonzero(parts[low : low + _READ_ROWS] == number)
    for low in range(0, len(parts), _READ_ROWS)
  ]
  return np.concatenate(found)


def _write_shard(draft: pathlib.Path, vectors, rows, fields) -> None:
  part = selected_rows.SelectedRows(vectors, rows)
  kind, metric = fields['kind'], fields['metric']
  if kind == 'scann' and len(rows) < scann.MIN_ROWS:
    kind = 'exact'
  if fields['by'] == 'rows':  # other rows were checked before
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
  folder = plan(path, vectors, fields, executor)
  drafts.remove_dead(folder, recursive=False)
  for other in folder.parent.glob(f'{pathlib.Path(path).name}.partial-*'):
    if other != folder:
      logging.warning(
        '%s: unfinished index of other settings; not used.', other
      )
  todo = missing(folder)
  # Workers need the absolute path.
  set_up = functools.partial(_builder, folder.absolute())
  calls = ((number,) for number in todo)
  built = (executor or executors.Inline()).run('index', set_up, calls)
  for done, number in enumerate(built, 1):
    logging.info('Shard %d is built, %d of %d.', number, done, len(todo))
  return search_tasks.searcher(folder, shards_in_memory, executor)


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
