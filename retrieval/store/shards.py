# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores that are written shard by shard, in any order and by any executor."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
import os
from typing import Any

import numpy as np

from retrieval.store import executors, store, store_writer

Progress = Callable[[int, int], None]  # (rows done, rows in all)
Make = Callable[[int, Progress | None], Mapping[str, np.ndarray]]


class EmptyError(ValueError):
  """No shard of a store holds a row."""


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
  make: Make,
  *,
  executor: executors.Executor | None = None,
  progress: Progress | None = None,
  meta: Mapping[str, Any] | None = None,
  needs_rows: str = '',
) -> store.Store | None:
  """Write the missing shards of a store and publish it when all are written.

  Args:
    fields: JSON fields that determine every byte of the store.
    counts: rows of each shard, for the progress.
    make: (shard, progress of the shard) -> arrays of the shard. Other processes get
      it pickled.
    executor: where the shards are made; None is this process.
    meta: further JSON facts of the published store.
    needs_rows: array without which the store is not published.

  Returns:
    The published store; None only with `executors.Share`, while other processes
    still have work.

  Raises:
    EmptyError: where `needs_rows` has no row.
  """
  writer = store_writer.StoreWriter(path, kind, fields)
  if writer.published:
    return store.Store.open(path, kind, fields)
  missing = writer.missing(len(counts))
  if isinstance(executor, executors.Share):
    share, count = executor.index, executor.count
    missing = [i for i in missing if i % count == share]
  total, done = sum(counts[i] for i in missing), 0
  if not isinstance(executor, executors.Remote) or len(missing) < 2:
    for i in missing:
      writer.write(i, make(i, shifted(progress, done, total)))
      done += counts[i]
      if progress:
        progress(done, total)
  else:
    set_up = lambda: lambda i: (make(i, None), i)  # noqa: E731
    calls = ((i, i) for i in missing)
    for i in write_all(writer, executor, set_up, calls):
      done += counts[i]
      if progress:
        progress(done, total)
  if writer.missing(len(counts)):
    return None
  if needs_rows and not any(
    writer.rows(i, needs_rows) for i in range(len(counts))
  ):
    raise EmptyError(f'{path}: no {needs_rows}.')
  return writer.publish(len(counts), meta)


def write_all(
  writer: store_writer.StoreWriter,
  executor: executors.Executor,
  set_up: Callable[[], Callable[..., tuple[Mapping[str, np.ndarray], int]]],
  calls: Iterable[tuple],
) -> Iterator[int]:
  """Write shards by calls that can be pickled; yield a number for each.

  Args:
    set_up: called in each process; returns the maker of a shard's arrays and of
      the number to yield.
    calls: (shard, arguments of the maker) of each shard to write.
  """
  place = (writer.path.absolute(), writer.kind, writer.fields)
  begin = functools.partial(_begin, place, set_up)
  return executor.run(writer.path.name, begin, calls)


def _begin(place: tuple, set_up) -> Callable[..., int]:
  make = set_up()
  writer = store_writer.StoreWriter(*place)

  def write(shard: int, *given) -> int:
    arrays, number = make(*given)
    writer.write(shard, arrays)
    return number

  return write
