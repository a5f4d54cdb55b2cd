# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds an index in shards: a plan, then each shard, in any process.

  folder = sharded_index.plan('runs/x/index', vectors, fields)
  for number in sharded_index.missing(folder):
    sharded_index.build_shard(folder, number)    # here, or on another machine

`index.build_index` does this with an executor, measures the whole and publishes it. A
killed build continues with what is missing.
"""

from collections.abc import Mapping
import functools
import os
import pathlib
from typing import Any

from absl import logging

from retrieval.searchers import (
  base,
  saved_vectors,
  scann,
  sharded,
  usearch,
)
from retrieval.store import drafts, executors, manifests, sharded_array


def building(
  path: str | os.PathLike, fields: Mapping[str, Any]
) -> pathlib.Path:
  """Return the folder in which the shards of an index at `path` are built."""
  path = pathlib.Path(path)
  key = manifests.fingerprint(dict(fields))
  return path.with_name(f'{path.name}.partial-{key[:12]}')


def plan(
  path: str | os.PathLike, vectors, fields: Mapping[str, Any]
) -> pathlib.Path:
  """Write the plan of the shards, unless it is there.

  Args:
    path: of the index.
    vectors: [n, d] array, memory map or sharded array. One that is no published
      store is copied.
    fields: JSON fields of the index, those of `index.json`.

  Returns:
    Folder of the shards.
  """
  folder = building(path, fields)
  if not (folder / base.FIELDS).exists():
    folder.mkdir(parents=True, exist_ok=True)
    base.write_fields(
      folder,
      name=sharded.ShardedSearcher.name,
      metric=fields['metric'],
      kind=fields['searcher'],
      shards=fields['shards'],
      scann=fields['scann'],
      **saved_vectors.save(folder, vectors),
    )
  return folder


def missing(folder: pathlib.Path) -> list[int]:
  """Return the numbers of the shards that are not built yet."""
  count = base.read_fields(folder)['shards']
  return [
    i for i in range(count) if not (folder / sharded.shard_name(i)).is_dir()
  ]


def build_shard(folder: str | os.PathLike, number: int) -> int:
  """Build and publish one shard of a plan, unless it is there; return its number.

  Several processes may build shards of one plan.

  Raises:
    ValueError: naming the shard, for vectors that are not finite or settings that
      do not fit its size.
  """
  folder = pathlib.Path(folder)
  target = folder / sharded.shard_name(number)
  if target.is_dir():
    return number
  fields = base.read_fields(folder)
  try:
    with drafts.folder(target) as draft:
      _write_shard(draft, saved_vectors.load(folder, fields), number, fields)
  except ValueError as e:
    count = fields['shards']
    raise ValueError(f'Shard {number} of {count} in {folder}: {e}') from None
  return number


def _write_shard(draft: pathlib.Path, vectors, number: int, fields) -> None:
  rows = sharded.bounds(fields['shape'][0], fields['shards'], number)
  part = sharded_array.SelectedRows(vectors, rows)
  metric = fields['metric']
  base.check_vectors(part, ids=rows)
  if fields['kind'] == 'scann' and len(rows) >= scann.MIN_ROWS:
    config = scann.ScannConfig(**fields['scann'])
    scann.ScannSearcher.build(part, metric, config).save(draft)
  elif fields['kind'] == 'usearch' and len(rows) >= scann.MIN_ROWS:
    usearch.UsearchSearcher.build(part, metric).save(draft)
  else:
    base.write_fields(draft, name='exact', metric=metric)


def build(
  path: str | os.PathLike,
  vectors,
  fields: Mapping[str, Any],
  shards_in_memory: int,
  executor: executors.Executor | None = None,
) -> sharded.ShardedSearcher:
  """Plan an index and build its missing shards; executor None is this process."""
  folder = plan(path, vectors, fields)
  drafts.remove_dead(folder, recursive=False)
  for other in folder.parent.glob(f'{pathlib.Path(path).name}.partial-*'):
    if other != folder:
      logging.warning(
        '%s: unfinished index of other settings; not used.', other
      )
  todo = missing(folder)
  make = functools.partial(build_shard, folder.absolute())
  calls = ((number,) for number in todo)
  built = (executor or executors.Inline()).run('index', make, calls)
  for done, number in enumerate(built, 1):
    logging.info('Shard %d is built, %d of %d.', number, done, len(todo))
  fields = base.read_fields(folder) | {'shards_in_memory': shards_in_memory}
  base.write_fields(folder, **fields)
  return sharded.ShardedSearcher.load(folder)
