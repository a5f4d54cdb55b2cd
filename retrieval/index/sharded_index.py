# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds an index in shards, in any process.

A killed build continues with the shards that are missing.
"""

from collections.abc import Mapping
import functools
import os
import pathlib
from typing import Any

from absl import logging

from retrieval.searchers import base, saved_vectors, scann, sharded, usearch
from retrieval.store import drafts, executors, sharded_array, shards


def build(
  path: str | os.PathLike,
  vectors,
  fields: Mapping[str, Any],
  shards_in_memory: int,
  executor: executors.Executor | None = None,
) -> sharded.ShardedSearcher:
  """Build the missing shards in a folder beside `path`, and open them.

  Vectors [n, d] of no published store are copied. `fields` are those of `index.json`.

  Raises:
    ValueError: naming the shard, for vectors that are not finite or settings that
      do not fit its size.
  """
  folder = shards.partial_folder(pathlib.Path(path), dict(fields))
  plan = dict(
    name=sharded.ShardedSearcher.name,
    metric=fields['metric'],
    kind=fields['searcher'],
    shards=fields['shards'],
    scann=fields['scann'],
  )
  if not (folder / base.FIELDS).exists():
    folder.mkdir(parents=True, exist_ok=True)
    base.write_fields(folder, **plan, **saved_vectors.save(folder, vectors))
  drafts.remove_dead(folder, recursive=False)
  numbers = range(fields['shards'])
  todo = [i for i in numbers if not (folder / sharded.shard_name(i)).is_dir()]
  make = functools.partial(_build_shard, folder.absolute())
  calls = ((number,) for number in todo)
  built = (executor or executors.Inline()).run('index', make, calls)
  for done, number in enumerate(built, 1):
    logging.info('Shard %d is built, %d of %d.', number, done, len(todo))
  saved = base.read_fields(folder) | {'shards_in_memory': shards_in_memory}
  base.write_fields(folder, **saved)
  return sharded.ShardedSearcher(folder)


def _build_shard(folder: pathlib.Path, number: int) -> int:
  """Build and publish one shard; return its number."""
  fields = base.read_fields(folder)
  try:
    with drafts.folder(folder / sharded.shard_name(number)) as draft:
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
