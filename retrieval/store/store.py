# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The on-disk form of everything prepared: .npy shards and a manifest.

A store is a directory of raw .npy shards plus manifest.json (schema version,
kind, fingerprint, row counts, a checksum for each file). It is written shard by
shard into a sibling directory and renamed when whole, so a reader never sees
half a store, and a killed writer continues at its first missing shard and ends
with the same bytes. Several processes may write one store: of two that write the
same shard the first one counts, and one of them publishes.
Arrays are memory-mapped: memory use does not grow with the store.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from typing import IO
from typing import Any

from absl import logging
import numpy as np

from retrieval.store import sharded_array

try:
  import fcntl
except ImportError:  # Windows; one process prepares there.
  fcntl = None

SCHEMA = 1
_MANIFEST = 'manifest.json'
_BUFFER_BYTES = 1 << 20
_KEYS = {'schema', 'kind', 'fingerprint', 'meta', 'shards'}


def fingerprint(obj: Any) -> str:
  """Hashes a JSON value; equal values give equal hex strings."""
  text = json.dumps(obj, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()[:32]


def hash_files(paths: Sequence[str | os.PathLike]) -> str:
  """Hashes the bytes of files, in the order given."""
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
  """Opens a file to write; it appears under its name once it is whole.

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
    with open(temporary, mode, _BUFFER_BYTES, encoding) as f:
      yield f
      f.flush()
      os.fsync(f.fileno())
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike, data: bytes | str) -> None:
  """Writes a whole file, as `open_atomically` does; text becomes UTF-8."""
  with open_atomically(path) as f:
    f.write(data.encode() if isinstance(data, str) else data)


def publish_folder(draft: pathlib.Path, path: pathlib.Path) -> bool:
  """Renames a finished folder; returns whether it was the first one at `path`.

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


def _dump(obj: Any) -> str:
  return json.dumps(obj, indent=1, sort_keys=True) + '\n'


def _shard_file(name: str, index: int) -> str:
  return f'{name}-{index:06d}.npy'


def _difference(want: Mapping, have: Mapping) -> str:
  keys = sorted(k for k in {*want, *have} if want.get(k) != have.get(k))
  return '; '.join(
    f'{k}: expected {want.get(k)!r}, found {have.get(k)!r}' for k in keys
  )


class StoreWriter:
  """Writes one store; safe to kill at any moment and to run again.

  Several processes may each have a writer of one store. Shards become part of it
  under a lock, which a killed process gives back.

  Attributes:
    path: where the store will stand once published.
    published: whether a store of this very fingerprint stood there already.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    kind: str,
    fingerprint_fields: Mapping[str, Any],
  ):
    """Prepares to write, or finds what an earlier run has left.

    Args:
      path: final directory of the store.
      kind: what the store holds, e.g. 'tokens'.
      fingerprint_fields: JSON fields that determine every byte of the store.

    Raises:
      ValueError: when another store stands at `path`.
    """
    self.path = pathlib.Path(path)
    self._kind = kind
    self._fields = json.loads(json.dumps(dict(fingerprint_fields)))
    key = fingerprint([SCHEMA, kind, self._fields])
    self._partial = self.path.with_name(f'{self.path.name}.partial-{key[:12]}')
    exists = self.path.exists()
    # Looked at second: another process may publish in between.
    if exists and not self._stands():
      raise ValueError(
        f'{self.path} exists but holds no {_MANIFEST}: move it away, a '
        f'{kind} store is to be written there.'
      )
    self.published = exists or self._begin()
    if self.published:
      Store.open(self.path, kind, self._fields)
      return
    for other in self.path.parent.glob(f'{self.path.name}.partial-*'):
      if other != self._partial:
        logging.warning(
          '%s is unfinished and of other settings; it is not used.', other
        )

  def _begin(self) -> bool:
    """Makes the folder of the shards; returns whether there is no need to."""
    self.path.parent.mkdir(parents=True, exist_ok=True)
    with self._locked():
      if self._stands():
        return True
      self._partial.mkdir(exist_ok=True)
      return False

  def _stands(self) -> bool:
    return (self.path / _MANIFEST).exists()

  def _sidecar(self, index: int) -> pathlib.Path:
    return self._partial / f'shard-{index:06d}.json'

  @contextlib.contextmanager
  def _locked(self) -> Iterator[None]:
    """Keeps the other processes from changing what the store consists of.

    Whoever gets the lock looks first whether the store stands, so its file can
    go once it does.
    """
    file = self.path.with_name(f'.{self.path.name}.lock')
    with open(file, 'w') as f:
      if fcntl:
        fcntl.flock(f, fcntl.LOCK_EX)
      try:
        yield
      finally:
        if self._stands():
          file.unlink(missing_ok=True)

  def has(self, index: int) -> bool:
    """Whether shard `index` is whole on disk."""
    # In the order in which publishing moves on: one of them is there.
    return (
      self._sidecar(index).exists()
      or (self._partial / _MANIFEST).exists()
      or self._stands()
    )

  def missing(self, num_shards: int) -> list[int]:
    """The shards of [0, num_shards) that are still to be written."""
    return [i for i in range(num_shards) if not self.has(i)]

  def rows(self, index: int, name: str) -> int:
    """Rows of one array in a shard that is written but not yet published."""
    return json.loads(self._sidecar(index).read_text())[name]['rows']

  def write(self, index: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes one shard; it counts only when all of its files are whole.

    A shard that another process has written in the meantime stays as it is.
    """
    try:
      written = {n: self._write(n, index, array) for n, array in arrays.items()}
      with self._locked():
        if self.has(index):
          for temporary, _ in written.values():
            temporary.unlink(missing_ok=True)
          return
        for name, (temporary, _) in written.items():
          os.replace(temporary, self._partial / _shard_file(name, index))
        entry = {name: facts for name, (_, facts) in written.items()}
        write_atomically(self._sidecar(index), _dump(entry))
    except FileNotFoundError:
      with self._locked():  # another process may be publishing right now
        if not self.has(index):
          raise

  def _write(
    self, name: str, index: int, array: np.ndarray
  ) -> tuple[pathlib.Path, dict[str, Any]]:
    """Writes one array under a temporary name; returns it and the facts."""
    file = self._partial / _shard_file(name, index)
    temporary = file.with_name(f'.{file.name}.{os.getpid()}')
    with open(temporary, 'wb') as f:
      np.save(f, np.ascontiguousarray(array), allow_pickle=False)
      f.flush()
      os.fsync(f.fileno())
    return temporary, {
      'rows': int(array.shape[0]),
      'row_shape': list(array.shape[1:]),
      'dtype': array.dtype.str,
      'checksum': hash_files([temporary]),
    }

  def publish(
    self, num_shards: int, meta: Mapping[str, Any] | None = None
  ) -> 'Store':
    """Makes the store visible by one rename.

    Args:
      num_shards: how many shards it has.
      meta: further JSON facts for readers; must not vary between runs.

    Returns:
      The opened store.

    Raises:
      ValueError: when a shard is missing.
    """
    if not self._stands():
      with self._locked():
        if not self._stands():
          self._move(self._seal(num_shards, meta or {}))
    return Store.open(self.path, self._kind, self._fields)

  def _move(self, manifest: Mapping[str, Any]) -> None:
    _keep_only(self._partial, manifest)
    os.rename(self._partial, self.path)
    # What others began to write before the rename.
    _keep_only(self.path, manifest)

  def _seal(self, num_shards: int, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the manifest, unless a process that was killed has done so."""
    file = self._partial / _MANIFEST
    if file.exists():
      return json.loads(file.read_text())
    missing = self.missing(num_shards)
    if missing:
      raise ValueError(
        f'{self._partial}: {len(missing)} of {num_shards} shards are missing, '
        f'the first is {missing[0]}.'
      )
    manifest = {
      'schema': SCHEMA,
      'kind': self._kind,
      'fingerprint': self._fields,
      'meta': dict(meta),
      'shards': [
        json.loads(self._sidecar(i).read_text()) for i in range(num_shards)
      ],
    }
    write_atomically(file, _dump(manifest))
    return manifest


def _keep_only(folder: pathlib.Path, manifest: Mapping[str, Any]) -> None:
  """Removes the files that a store does not consist of."""
  keep = {_MANIFEST}
  for i, shard in enumerate(manifest['shards']):
    keep |= {_shard_file(name, i) for name in shard}
  for file in folder.iterdir():
    if file.name not in keep:
      file.unlink(missing_ok=True)


class Store:
  """A published, immutable store.

  Attributes:
    path: its directory.
    meta: the facts its writer added.
    fields: the fingerprint's fields.
    fingerprint: hash of what determines every byte of it.
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
    """Opens a published store and checks that it is the one expected.

    Args:
      path: its directory.
      kind: what it must hold.
      fingerprint_fields: what it must have been made from; None for anything.

    Raises:
      FileNotFoundError: when no store stands there.
      ValueError: when it is of another schema, kind or fingerprint.
    """
    path = pathlib.Path(path)
    try:
      manifest = json.loads((path / _MANIFEST).read_text())
    except FileNotFoundError:
      raise FileNotFoundError(
        f'{path}: no {kind} store here ({_MANIFEST} is missing); prepare the '
        'data first.'
      ) from None
    except json.JSONDecodeError as e:
      raise ValueError(f'{path / _MANIFEST}: not JSON ({e}).') from None
    if not isinstance(manifest, dict) or _KEYS - set(manifest):
      raise ValueError(
        f'{path / _MANIFEST}: not a manifest, which has {sorted(_KEYS)}.'
      )
    for key, want in (('schema', SCHEMA), ('kind', kind)):
      if manifest.get(key) != want:
        raise ValueError(
          f'{path}: {key} is {manifest.get(key)!r}, expected {want!r}.'
        )
    if fingerprint_fields is not None:
      want = json.loads(json.dumps(dict(fingerprint_fields)))
      if want != manifest['fingerprint']:
        raise ValueError(
          f'{path}: this {kind} store was made from something else ('
          f'{_difference(want, manifest["fingerprint"])}); choose another '
          'folder or remove this one.'
        )
    for i, shard in enumerate(manifest['shards']):
      for name in shard:
        if not (path / _shard_file(name, i)).exists():
          raise ValueError(
            f'{path / _shard_file(name, i)}: missing from its store; remove '
            f'{path} and prepare it again.'
          )
    return cls(path, manifest)

  @property
  def num_shards(self) -> int:
    """How many shards each array has."""
    return len(self._shards)

  def rows(self, name: str) -> list[int]:
    """Rows of array `name` in each shard."""
    return [shard[name]['rows'] for shard in self._shards]

  def array(self, name: str) -> sharded_array.ShardedArray:
    """All rows of one array, memory-mapped."""
    if not self._shards or name not in self._shards[0]:
      known = sorted(self._shards[0]) if self._shards else []
      raise ValueError(f'{self.path}: no array {name!r}, it holds {known}.')
    first = self._shards[0][name]
    files = [self.path / _shard_file(name, i) for i in range(len(self._shards))]
    return sharded_array.ShardedArray(
      files,
      self.rows(name),
      tuple(first['row_shape']),
      sharded_array.dtype_of(first['dtype']),
    )

  def shard(self, index: int, name: str) -> np.ndarray:
    """One shard of one array, memory-mapped afresh and not kept."""
    entry = self._shards[index][name]
    return sharded_array.load(
      self.path / _shard_file(name, index),
      (entry['rows'], *entry['row_shape']),
      sharded_array.dtype_of(entry['dtype']),
    )

  def verify(self) -> None:
    """Reads every byte and compares the checksums.

    Raises:
      ValueError: naming the first file that is missing or differs.
    """
    for i, shard in enumerate(self._shards):
      for name, entry in shard.items():
        file = self.path / _shard_file(name, i)
        try:
          found = hash_files([file])
        except FileNotFoundError:
          raise ValueError(
            f'{file}: missing from its store; remove {self.path} and prepare it '
            'again.'
          ) from None
        if found != entry['checksum']:
          raise ValueError(
            f'{file}: damaged (checksum {found}, manifest says '
            f'{entry["checksum"]}); remove {self.path} and prepare it again.'
          )
