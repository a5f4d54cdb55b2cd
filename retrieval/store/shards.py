# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores (see `array_store`) that are written shard by shard, so that a kill loses one.

Shards are written in any order and by any executor into a folder beside the store, each
with an entry that makes it count. When all are there, the manifest takes the place of
the entries, and the folder is renamed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import functools
import json
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np

from retrieval.store import (
  array_store,
  checksums,
  executors,
  locks,
  manifests,
  output_files,
)

Progress = Callable[[int, int], None]  # (rows done, rows in all)
Make = Callable[[int, Progress | None], Mapping[str, np.ndarray]]


def partial_folder(path: pathlib.Path, made_of: Any) -> pathlib.Path:
  """Return the folder beside a path in which what it is made of is built.

  Warns of unfinished folders of other settings, unless `path` is there.
  """
  key = manifests.fingerprint(made_of)
  folder = path.with_name(f'{path.name}.partial-{key[:12]}')
  for other in path.parent.glob(f'{path.name}.partial-*'):
    if other != folder and not path.exists():
      logging.warning('%s: unfinished, of other settings; not used.', other)
  return folder


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
    kind: content of the store, such as 'tokens'.
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
  writer = StoreWriter(path, kind, fields)
  if writer.published:
    return writer.published
  together = isinstance(executor, executors.Share)
  with contextlib.nullcontext() if together else locks.maker(writer.path):
    missing = writer.missing(len(counts))
    if together:
      missing = [i for i in missing if i % executor.count == executor.index]
    total, done = sum(counts[i] for i in missing), 0
    here = isinstance(executor, executors.Inline | None) or len(missing) < 2
    calls = (
      (i, i, shifted(progress, done, total) if here else None) for i in missing
    )
    processes = executors.Inline() if here else executor
    for i in write_all(writer, processes, make, calls):
      done += counts[i]
      if progress:
        progress(done, total)
    if together and (not executor.leads or writer.missing(len(counts))):
      return None
    return writer.publish(len(counts), meta, needs_rows)


def write_all(
  writer: 'StoreWriter',
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
  write_shard(folder, shard, make(*arguments))
  return shard


def write_shard(
  folder: pathlib.Path, index: int, arrays: Mapping[str, np.ndarray]
) -> None:
  """Write a shard into the folder of a `StoreWriter`, in any process."""
  entry = {}
  for name, array in arrays.items():
    file = folder / array_store.shard_file(name, index)
    with output_files.writing(file, size=array.nbytes) as f:
      np.save(f, np.ascontiguousarray(array), allow_pickle=False)
    entry[name] = {
      'rows': int(array.shape[0]),
      'row_shape': list(array.shape[1:]),
      'dtype': array.dtype.str,
      'checksum': checksums.of_file(file),
    }
  output_files.write(_entry_file(folder, index), manifests.sealed(entry))


def _entry_file(folder: pathlib.Path, index: int) -> pathlib.Path:
  return folder / f'shard-{index:06d}.json'


class StoreWriter:
  """Writes one store; safe to kill at any moment and to run again.

  One process at a time has a writer of a store; other processes may write shards.

  Attributes:
    path, kind, fields: of the store.
    folder: of its shards, for `write_shard`.
    published: the store, if one of the same fields was published before.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    kind: str,
    fingerprint_fields: Mapping[str, Any],
  ):
    """Start a store, or continue the one that an earlier run left.

    Raises:
      ValueError: when there is another store at `path`.
    """
    self.path, self.kind = pathlib.Path(path), kind
    self.fields = json.loads(json.dumps(dict(fingerprint_fields)))
    made_of = [array_store.SCHEMA, kind, self.fields]
    self.published, self.folder = None, partial_folder(self.path, made_of)
    if self.path.exists():
      if not (self.path / array_store.MANIFEST).exists():
        raise ValueError(
          f'{self.path} exists without a {array_store.MANIFEST}: move it away to '
          f'write a {kind} store there.'
        )
      self.published = array_store.Store.open(self.path, kind, self.fields)

  def has(self, index: int) -> bool:
    """Whether shard `index` is whole on disk."""
    return (
      _entry_file(self.folder, index).exists()
      or (self.folder / array_store.MANIFEST).exists()
      or self.path.exists()
    )

  def missing(self, num_shards: int) -> list[int]:
    """List the shards of [0, num_shards) that are not yet written."""
    return [i for i in range(num_shards) if not self.has(i)]

  def publish(
    self,
    num_shards: int,
    meta: Mapping[str, Any] | None = None,
    needs_rows: tuple[str, str] | None = None,
  ) -> array_store.Store:
    """Make the store visible by one rename; arguments as of `build_store`.

    Raises:
      FileNotFoundError: when a shard is missing.
      ValueError: when there is no such row.
    """
    if not self.path.exists():
      manifest = self.folder / array_store.MANIFEST
      if not manifest.exists():  # else an earlier run was killed here
        entries = (_entry_file(self.folder, i) for i in range(num_shards))
        entries = [manifests.read_json(x) for x in entries]
        if needs_rows and not any(x[needs_rows[0]]['rows'] for x in entries):
          raise ValueError(f'{self.path}: {needs_rows[1]}')
        content = {
          'schema': array_store.SCHEMA,
          'kind': self.kind,
          'fingerprint': self.fields,
          'meta': dict(meta or {}),
          'shards': entries,
        }
        output_files.write(manifest, manifests.sealed(content))
      for file in self.folder.iterdir():
        if file.suffix != '.npy' and file != manifest:
          file.unlink()
      os.rename(self.folder, self.path)
    return array_store.Store.open(self.path, self.kind, self.fields)
