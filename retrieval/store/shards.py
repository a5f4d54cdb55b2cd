# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores that are written shard by shard, in any order and by any executor."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
import os
from typing import Any

import numpy as np

from retrieval.store import array_store, executors, store_writer

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
) -> array_store.Store | None:
  """Write the missing shards of a store and publish it when all are written.

  Args:
    fields: JSON fields that determine every byte of the store.
    counts: rows of each shard, for the progress.
    make: (shard, progress of the shard) -> arrays. Other processes get it pickled.
    executor: where the shards are made; None is this process.
    meta: further JSON facts of the published store.
    needs_rows: array that must have a row, else EmptyError.

  Returns:
    The published store; None only with `executors.Share`, while other processes
    still have work.
  """
  writer = store_writer.StoreWriter(path, kind, fields)
  if writer.published:
    return array_store.Store.open(path, kind, fields)
  missing = writer.missing(len(counts))
  if isinstance(executor, executors.Share):
    share, count = executor.index, executor.count
    missing = [i for i in missing if i % count == share]
  total, done = sum(counts[i] for i in missing), 0

  def made_here():
    for i in missing:
      writer.write(i, make(i, shifted(progress, done, total)))
      yield i

  written = made_here()
  if isinstance(executor, executors.Remote) and len(missing) > 1:
    calls = ((i, i, None) for i in missing)
    written = write_all(writer, executor, make, calls)
  for i in written:
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
  make: Callable[..., Mapping[str, np.ndarray]],
  calls: Iterable[tuple],
) -> Iterator[int]:
  """Write shards by calls that can be pickled; yield the number of each.

  Args:
    calls: shard to write, and the arguments of `make`.
  """
  place = (writer.path.absolute(), writer.kind, writer.fields)
  open_writer = executors.Lazy(store_writer.StoreWriter, *place)
  write = functools.partial(_write, open_writer, make)
  return executor.run(writer.path.name, write, calls)


def _write(writer, make, shard: int, *given) -> int:
  writer.write(shard, make(*given))
  return shard
