# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores that are written shard by shard, in any order and by any executor."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
import os
import pathlib
from typing import Any

import numpy as np

from retrieval.store import executors, store, store_writer

Progress = executors.Progress
shifted = executors.shifted


def build_store(
  path: str | os.PathLike,
  kind: str,
  fields: Mapping[str, Any],
  counts: Sequence[int],
  make: executors.Make,
  *,
  executor: executors.Executor | None = None,
  progress: Progress | None = None,
  meta: Mapping[str, Any] | None = None,
) -> store.Store | None:
  """Write the missing shards of a store and publish it when all are written.

  Args:
    fields: JSON fields that determine every byte of the store.
    make: (shard, progress of the shard) -> arrays of the shard.
    executor: where the shards are made; None is this process.
    meta: further JSON facts of the published store.

  Returns:
    The published store; None only with `executors.Share`, while other processes
    still have work.
  """
  writer = store_writer.StoreWriter(path, kind, fields)
  if writer.published:
    return store.Store.open(path, kind, fields)
  missing = {i: counts[i] for i in writer.missing(len(counts))}
  executor = executor or executors.Inline()
  if not executor.write_shards(writer, missing, make, progress):
    return None
  return writer.publish(len(counts), meta)


def write_all(
  writer: store_writer.StoreWriter,
  executor: executors.Executor,
  set_up: Callable[..., Callable[..., tuple[Mapping[str, np.ndarray], int]]],
  arguments: tuple,
  calls: Iterable[tuple],
) -> Iterator[int]:
  """Write shards by tasks that can be pickled; yield a number for each.

  Args:
    set_up: called with `arguments` in each worker; returns the maker of a
      shard's arrays and of the number to yield.
    calls: (shard, arguments of the maker) of each shard to write.
  """
  place = (writer.path, writer.kind, writer.fields)
  begin = functools.partial(_begin, place, set_up, arguments)
  return executor.run(writer.path.name, begin, calls)


def _begin(
  place: tuple[pathlib.Path, str, Mapping[str, Any]], set_up, arguments
) -> Callable[..., int]:
  make = set_up(*arguments)
  writer = store_writer.StoreWriter(*place)

  def write(shard: int, *given) -> int:
    arrays, number = make(*given)
    writer.write(shard, arrays)
    return number

  return write
