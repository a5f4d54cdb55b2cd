# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The on-disk form of everything prepared: .npy shards and a manifest.

A store is a directory of raw .npy shards plus manifest.json (schema version, kind,
fields, row counts, a checksum for each file). `store_writer` fills a sibling directory
shard by shard and renames it when all are written: readers see whole stores only.
Arrays are memory-mapped: memory use does not grow with the store.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from typing import IO, Any

import numpy as np

from retrieval.store import checksums, drafts, manifests, sharded_array

SCHEMA = 1
MANIFEST = 'manifest.json'
_BUFFER_BYTES = 1 << 20


def fingerprint(obj: Any) -> str:
  """Hash a JSON value; equal values give equal hex strings."""
  text = json.dumps(obj, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()[:32]


def hash_files(paths: Sequence[str | os.PathLike]) -> str:
  """Hash the bytes of files, in the order given."""
  digest = hashlib.sha256()
  for path in paths:
    with open(path, 'rb') as f:
      while block := f.read(1 << 20):
        digest.update(block)
  return digest.hexdigest()[:32]


def check_output(path: str | os.PathLike) -> None:
  """Raise ValueError for a folder, a device or a pipe, and for a name below a file."""
  path = pathlib.Path(path)
  if path.exists() and not path.is_file():
    what = 'a folder' if path.is_dir() else 'a device or a pipe'
    raise ValueError(f'{path}: {what}; expected the name of a file to write.')
  _folder_above(path)


def check_writable(path: str | os.PathLike, *, is_folder: bool = False) -> None:
  """Try to write what a command will write when it ends; nothing stays behind.

  Args:
    path: of a file, or of a folder of files; folders above it may be missing.

  Raises:
    ValueError: as `check_output`, and for a folder that is a file.
    OSError: naming the path, where the system refuses a new file.
  """
  path = pathlib.Path(path)
  if not is_folder:
    check_output(path)
  folder = _folder_above(path / 'file' if is_folder else path)
  probe = drafts.beside(folder / path.name)
  try:
    probe.touch()
  except OSError as error:
    text = f'cannot be written ({error.strerror})'
    raise OSError(error.errno, text, str(path)) from None
  finally:
    probe.unlink(missing_ok=True)


def _folder_above(path: pathlib.Path) -> pathlib.Path:
  """Return the nearest folder above that exists."""
  above = next((x for x in path.parents if os.path.lexists(x)), path.parent)
  if os.path.lexists(above) and not above.is_dir():
    raise ValueError(f'{path}: {above} is not a folder.')
  return above


@contextlib.contextmanager
def open_atomically(
  path: str | os.PathLike, mode: str = 'wb'
) -> Iterator[IO[Any]]:
  """Open a file to write; it appears under its name once it is whole.

  An exception discards it and leaves an older file in place.

  Args:
    path: of the file, for `check_output`; missing folders are made.
    mode: 'wb', or 'w' for UTF-8 text.

  Raises:
    ValueError: as `check_output`.
  """
  path = pathlib.Path(path)
  check_output(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = drafts.beside(path)
  encoding = None if 'b' in mode else 'utf-8'
  try:
    with open(temporary, mode, _BUFFER_BYTES, encoding) as f:
      yield f
      f.flush()
      os.fsync(f.fileno())
    os.replace(temporary, path)
  except OSError as error:
    if error.filename != str(temporary):
      raise
    raise OSError(error.errno, error.strerror, str(path)) from None
  finally:
    temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike, data: bytes | str) -> None:
  """Write a whole file, as `open_atomically` does; text becomes UTF-8."""
  with open_atomically(path) as f:
    f.write(data.encode() if isinstance(data, str) else data)


def publish_folder(draft: pathlib.Path, path: pathlib.Path) -> bool:
  """Rename a finished folder; return whether it was the first one at `path`.

  A draft that comes second is removed.
  """
  try:
    os.rename(draft, path)
    return True
  except OSError:
    if not path.is_dir():
      raise
    shutil.rmtree(draft, ignore_errors=True)
    return False


def shard_file(name: str, index: int) -> str:
  """Name of the file of one shard of one array."""
  return f'{name}-{index:06d}.npy'


class Store:
  """A published, immutable store."""

  def __init__(self, path: str | os.PathLike, manifest: Mapping[str, Any]):
    self.path = pathlib.Path(path)
    self._shards = manifest['shards']
    self.meta = manifest['meta']  # further facts from its writer
    self.fields = manifest['fingerprint']  # what determines its bytes
    self.fingerprint = fingerprint(
      [manifest['schema'], manifest['kind'], self.fields]
    )

  @classmethod
  def open(
    cls,
    path: str | os.PathLike,
    kind: str,
    fingerprint_fields: Mapping[str, Any] | None = None,
  ) -> 'Store':
    """Open a published store.

    Raises:
      FileNotFoundError: when there is no store.
      ValueError: when it is of another schema or kind, or of other fields than those
        given.
    """
    path = pathlib.Path(path)
    manifest = manifests.read_json(
      path / MANIFEST,
      f'{path}: no {kind} store here ({MANIFEST} is missing); prepare the data '
      'first.',
    )
    for key, want in (('schema', SCHEMA), ('kind', kind)):
      if (found := manifest.get(key)) != want:
        raise ValueError(f'{path}: {key} is {found!r}, expected {want!r}.')
    found = want = manifest['fingerprint']
    if fingerprint_fields is not None:
      want = json.loads(json.dumps(dict(fingerprint_fields)))
    if want != found:
      raise ValueError(
        f'{path}: this {kind} store was made from other data or settings ('
        f'{manifests.difference(want, found)}); choose another folder or remove '
        'this one.'
      )
    return cls(path, manifest)

  def source(self, name: str, given: Any, open_source: Callable) -> Any:
    """Return the store that this one was made from.

    Args:
      name: its name in the fields and in `meta`, such as 'tokens'.
      given: the store, if it is open; None opens the one beside this store.
      open_source: path -> store.

    Raises:
      ValueError: when `given` is another store.
    """
    if given is None:
      given = open_source(self.path.parent / self.meta[name])
    if given.store.fingerprint != self.fields[name]:
      raise ValueError(
        f'{self.path}: made of {name[:-1]} store {self.fields[name]}, but '
        f'{given.path} is {given.store.fingerprint}.'
      )
    return given

  @property
  def num_shards(self) -> int:
    """Number of shards of each array."""
    return len(self._shards)

  def rows(self, name: str) -> list[int]:
    """Rows of one array in each shard."""
    return [shard[name]['rows'] for shard in self._shards]

  def array(self, name: str) -> sharded_array.ShardedArray:
    """All rows of one array, memory-mapped."""
    first = self._shards[0] if self._shards else {}
    if name not in first:
      raise ValueError(f'{self.path}: no array {name!r}, only {sorted(first)}.')
    return sharded_array.ShardedArray(
      [self.path / shard_file(name, i) for i in range(self.num_shards)],
      self.rows(name),
      tuple(first[name]['row_shape']),
      first[name]['dtype'],
      [shard[name]['checksum'] for shard in self._shards],
    )

  def shard(self, index: int, name: str) -> np.ndarray:
    """Memory-maps one shard of one array, without caching it."""
    file = self.path / shard_file(name, index)
    return sharded_array.load(file, self._shards[index][name]['checksum'])

  def verify(self) -> None:
    """Compare the checksums of all files now; ValueError names a damaged one."""
    for index, shard in enumerate(self._shards):
      for name, entry in shard.items():
        file = self.path / shard_file(name, index)
        checksums.check(file, entry['checksum'], sharded_array.advice(file))
