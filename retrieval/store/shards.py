# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores that are written shard by shard, in any order and by any executor."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import functools
import os
import pathlib
from typing import Any

import numpy as np

from retrieval.store import array_store, executors, locks, store_writer

Progress = Callable[[int, int], None]  # (rows done, rows in all)
Make = Callable[[int, Progress | None], Mapping[str, np.ndarray]]


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
  needs_rows: tuple[str, str] | None = None,
) -> array_store.Store | None:
  """Write the missing shards of a store and publish it when all are written.

  Another process that writes the same store is waited for.

  Args:
    fields: JSON fields that determine every byte of the store.
    counts: rows of each shard, for the progress.
    make: (shard, progress of the shard) -> arrays. Other processes get it pickled.
    executor: where the shards are made; None is this process.
    meta: further JSON facts of the published store.
    needs_rows: array that must have a row, and the error of a store without one.

  Returns:
    The published store; None with `executors.Share` for all but the process that
    leads, and for that one while other processes still have work.
  """
  writer = store_writer.StoreWriter(path, kind, fields)
  if writer.published:
    return array_store.Store.open(path, kind, fields)
  together = isinstance(executor, executors.Share)
  with contextlib.nullcontext() if together else locks.maker(writer.path):
    missing = writer.missing(len(counts))
    if together:
      missing = [i for i in missing if i % executor.count == executor.index]
    total, done = sum(counts[i] for i in missing), 0
    calls = ((i, i, shifted(progress, done, total)) for i in missing)
    processes = executors.Inline()
    if isinstance(executor, executors.Remote) and len(missing) > 1:
      calls, processes = ((i, i, None) for i in missing), executor
    for i in write_all(writer, processes, make, calls):
      done += counts[i]
      if progress:
        progress(done, total)
    if together and (not executor.leads or writer.missing(len(counts))):
      return None
    return writer.publish(len(counts), meta, needs_rows)


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
  write = functools.partial(_write, writer.folder.absolute(), make)
  return executor.run(writer.path.name, write, calls)


def _write(folder: pathlib.Path, make, shard: int, *arguments) -> int:
  store_writer.write_shard(folder, shard, make(*arguments))
  return shard
