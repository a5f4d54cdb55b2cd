# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes stores (`store` describes them) so that a kill loses one shard."""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np

from retrieval.store import (
  checksums,
  drafts,
  locks,
  manifests,
  store,
  verification,
)


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
    key = store.fingerprint([manifests.SCHEMA, kind, self.fields])
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
      store.Store.open(self.path, kind, self.fields)
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
      self._drop_damaged()
      return False

  def _drop_damaged(self) -> None:
    """Forget shards of a run before that are damaged: they are written again."""
    for sidecar in sorted(self._partial.glob('shard-*.json')):
      index = int(sidecar.stem.removeprefix('shard-'))
      try:
        for name, facts in manifests.read_json(sidecar).items():
          file = self._partial / manifests.shard_file(name, index)
          verification.check(
            file, facts['checksum'], 'it is written again', remember=False
          )
      except ValueError as error:
        logging.warning('%s', error)
        (self._partial / manifests.FILE).unlink(missing_ok=True)
        sidecar.unlink()

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
    return manifests.read_json(self._sidecar(index))[name]['rows']

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
        store.write_atomically(self._sidecar(index), manifests.sealed(entry))
    except FileNotFoundError:
      with self._locked():  # another process may be publishing right now
        if not self.has(index):
          raise

  def _write(
    self, name: str, index: int, array: np.ndarray
  ) -> tuple[pathlib.Path, dict[str, Any]]:
    """Write one array; return the temporary file and its manifest entry."""
    file = self._partial / manifests.shard_file(name, index)
    temporary = drafts.beside(file)
    try:
      with open(temporary, 'wb') as f:
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
      'checksum': checksums.of_file(temporary),
    }

  def publish(
    self, num_shards: int, meta: Mapping[str, Any] | None = None
  ) -> store.Store:
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
    return store.Store.open(self.path, self.kind, self.fields)

  def _move(self, manifest: Mapping[str, Any]) -> None:
    manifests.keep_only(self._partial, manifest['shards'])
    os.rename(self._partial, self.path)
    # Other processes may have begun to write here before the rename.
    manifests.keep_only(self.path, manifest['shards'])

  def _seal(self, num_shards: int, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest, unless a process that was killed has done so."""
    file = self._partial / manifests.FILE
    if file.exists():
      return manifests.read_json(file)
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
        manifests.read_json(self._sidecar(i)) for i in range(num_shards)
      ],
    }
    store.write_atomically(file, manifests.sealed(manifest))
    return manifest
