# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores that several processes write shard by shard."""

from collections.abc import Callable, Mapping, Sequence
import os
from typing import Any

import numpy as np

from retrieval.store import store

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
  writer = store.StoreWriter(path, kind, fields)
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
