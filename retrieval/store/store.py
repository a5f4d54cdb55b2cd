# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The on-disk form of everything prepared: .npy shards and a manifest.

A store is a directory of raw .npy shards plus manifest.json (schema version,
kind, fingerprint, row counts, a checksum for each file). Its writer fills a
sibling directory shard by shard and renames it when all shards are written.
Readers therefore see whole stores only, and a killed writer continues at its
first missing shard and ends with the same bytes. Several processes may write
one store: the first version of a shard counts, and one process publishes.
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

from absl import logging
import numpy as np

from retrieval.store import locks, manifests, sharded_array, space

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


@contextlib.contextmanager
def open_atomically(
  path: str | os.PathLike, mode: str = 'wb'
) -> Iterator[IO[Any]]:
  """Open a file to write; it appears under its name once it is whole.

  Args:
    path: of the file; missing folders are made.
    mode: 'wb', or 'w' for UTF-8 text.

  Yields:
    The open file. An exception discards it and leaves an older file in place.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}')
  encoding = None if 'b' in mode else 'utf-8'
  try:
    with (
      space.explained(path),
      open(temporary, mode, _BUFFER_BYTES, encoding) as f,
    ):
      yield f
      f.flush()
      os.fsync(f.fileno())
    os.replace(temporary, path)
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


class StoreWriter:
  """Writes one store; safe to kill at any moment and to run again.

  Several processes may each have a writer of one store. They add their shards
  under a lock, which a killed process gives back.

  Attributes:
    path, kind, fields: of the store.
    published: whether a store of the same fingerprint was published before.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    kind: str,
    fingerprint_fields: Mapping[str, Any],
  ):
    """Start a store, or continue the one that an earlier run left.

    Args:
      kind: content of the store, e.g. 'tokens'.
      fingerprint_fields: JSON fields that determine every byte of the store.

    Raises:
      ValueError: when there is another store at `path`.
    """
    self.path = pathlib.Path(path)
    self.kind = kind
    self.fields = json.loads(json.dumps(dict(fingerprint_fields)))
    key = fingerprint([manifests.SCHEMA, kind, self.fields])
    self._partial = self.path.with_name(f'{self.path.name}.partial-{key[:12]}')
    exists = self.path.exists()
    # Another process may publish between the two checks.
    if exists and not self._is_published():
      raise ValueError(
        f'{self.path} exists without a {manifests.FILE}: move it away to write a '
        f'{kind} store there.'
      )
    self.published = exists or self._begin()
    if self.published:
      Store.open(self.path, kind, self.fields)
      return
    for other in self.path.parent.glob(f'{self.path.name}.partial-*'):
      if other != self._partial:
        logging.warning(
          '%s: unfinished store of other settings; not used.', other
        )

  def _begin(self) -> bool:
    """Make the folder of the shards, unless the store is published."""
    self.path.parent.mkdir(parents=True, exist_ok=True)
    with self._locked():
      if self._is_published():
        return True
      self._partial.mkdir(exist_ok=True)
      return False

  def _is_published(self) -> bool:
    return (self.path / manifests.FILE).exists()

  def _sidecar(self, index: int) -> pathlib.Path:
    return self._partial / f'shard-{index:06d}.json'

  @contextlib.contextmanager
  def _locked(self) -> Iterator[None]:
    """Keep other processes from adding shards and from publishing.

    Every holder of the lock checks first whether the store is published, so the
    lock's file can be removed after that.
    """
    file = self.path.with_name(f'.{self.path.name}.lock')
    with locks.hold(file):
      try:
        yield
      finally:
        if self._is_published():
          file.unlink(missing_ok=True)

  def has(self, index: int) -> bool:
    """Whether shard `index` is whole on disk."""
    # In the order of publication, so that one of the checks succeeds.
    return (
      self._sidecar(index).exists()
      or (self._partial / manifests.FILE).exists()
      or self._is_published()
    )

  def missing(self, num_shards: int) -> list[int]:
    """List the shards of [0, num_shards) that are not yet written."""
    return [i for i in range(num_shards) if not self.has(i)]

  def rows(self, index: int, name: str) -> int:
    """Return the rows of one array in a shard before publication."""
    return json.loads(self._sidecar(index).read_text())[name]['rows']

  def write(self, index: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Write one shard, unless another process has written it meanwhile.

    The shard counts only when all of its files are whole.
    """
    try:
      written = {n: self._write(n, index, array) for n, array in arrays.items()}
      with self._locked():
        if self.has(index):
          for temporary, _ in written.values():
            temporary.unlink(missing_ok=True)
          return
        for name, (temporary, _) in written.items():
          os.replace(
            temporary, self._partial / manifests.shard_file(name, index)
          )
        entry = {name: facts for name, (_, facts) in written.items()}
        write_atomically(self._sidecar(index), manifests.dump(entry))
    except FileNotFoundError:
      with self._locked():  # another process may be publishing right now
        if not self.has(index):
          raise

  def _write(
    self, name: str, index: int, array: np.ndarray
  ) -> tuple[pathlib.Path, dict[str, Any]]:
    """Write one array; return the temporary file and its manifest entry."""
    file = self._partial / manifests.shard_file(name, index)
    temporary = file.with_name(f'.{file.name}.{os.getpid()}')
    try:
      with space.explained(file, array.nbytes), open(temporary, 'wb') as f:
        np.save(f, np.ascontiguousarray(array), allow_pickle=False)
        f.flush()
        os.fsync(f.fileno())
    except BaseException:
      temporary.unlink(missing_ok=True)
      raise
    return temporary, {
      'rows': int(array.shape[0]),
      'row_shape': list(array.shape[1:]),
      'dtype': array.dtype.str,
      'checksum': hash_files([temporary]),
    }

  def publish(
    self, num_shards: int, meta: Mapping[str, Any] | None = None
  ) -> 'Store':
    """Make the store visible by one rename.

    `meta` holds further JSON facts for readers; they must not vary between
    runs.

    Raises:
      ValueError: when a shard is missing.
    """
    if not self._is_published():
      with self._locked():
        if not self._is_published():
          self._move(self._seal(num_shards, meta or {}))
    return Store.open(self.path, self.kind, self.fields)

  def _move(self, manifest: Mapping[str, Any]) -> None:
    manifests.keep_only(self._partial, manifest['shards'])
    os.rename(self._partial, self.path)
    # Other processes may have begun to write here before the rename.
    manifests.keep_only(self.path, manifest['shards'])

  def _seal(self, num_shards: int, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest, unless a process that was killed has done so."""
    file = self._partial / manifests.FILE
    if file.exists():
      return json.loads(file.read_text())
    missing = self.missing(num_shards)
    if missing:
      raise ValueError(
        f'{self._partial}: {len(missing)} of {num_shards} shards are missing, '
        f'the first is {missing[0]}.'
      )
    manifest = {
      'schema': manifests.SCHEMA,
      'kind': self.kind,
      'fingerprint': self.fields,
      'meta': dict(meta),
      'shards': [
        json.loads(self._sidecar(i).read_text()) for i in range(num_shards)
      ],
    }
    write_atomically(file, manifests.dump(manifest))
    return manifest


class Store:
  """A published, immutable store.

  Attributes:
    meta: further facts from its writer.
    fingerprint: hash of everything that determines its bytes.
  """

  def __init__(self, path: str | os.PathLike, manifest: Mapping[str, Any]):
    self.path = pathlib.Path(path)
    self._shards = manifest['shards']
    self.meta = manifest['meta']
    self.fields = manifest['fingerprint']
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
    """Open a published store and check its kind and fingerprint.

    Without `fingerprint_fields` any store of the kind is accepted.

    Raises:
      FileNotFoundError: when there is no store.
      ValueError: when it is of another schema, kind or fingerprint.
    """
    return cls(path, manifests.read(path, kind, fingerprint_fields))

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
      [
        self.path / manifests.shard_file(name, i)
        for i in range(self.num_shards)
      ],
      self.rows(name),
      tuple(first[name]['row_shape']),
      first[name]['dtype'],
    )

  def shard(self, index: int, name: str) -> np.ndarray:
    """Memory-maps one shard of one array, without caching it."""
    entry = self._shards[index][name]
    return sharded_array.load(
      self.path / manifests.shard_file(name, index),
      (entry['rows'], *entry['row_shape']),
      sharded_array.dtype_of(entry['dtype']),
    )

  def verify(self) -> None:
    """Read every byte and compare the checksums.

    Raises:
      ValueError: naming the first file that is missing or differs.
    """
    for file, entry in manifests.files(self.path, self._shards):
      manifests.check_exists(file)
      found = hash_files([file])
      if found != entry['checksum']:
        raise ValueError(
          f'{file}: damaged (checksum {found}, manifest says '
          f'{entry["checksum"]}); remove {self.path} and prepare it again.'
        )
