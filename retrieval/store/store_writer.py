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
  array_store,
  checksums,
  drafts,
  locks,
  manifests,
  output_files,
)


class StoreWriter:
  """Writes one store; safe to kill at any moment and to run again.

  Several processes may each have a writer of one store. They add their shards under a
  lock: the first version of a shard counts, and one process publishes.

  Attributes:
    path, kind, fields: of the store.
    published: whether a store of the same fields was published before.
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
    self.path, self.kind = pathlib.Path(path), kind
    self.fields = json.loads(json.dumps(dict(fingerprint_fields)))
    key = manifests.fingerprint([array_store.SCHEMA, kind, self.fields])
    self._partial = self.path.with_name(f'{self.path.name}.partial-{key[:12]}')
    exists = self.path.exists()
    # Another process may publish between the two checks.
    if exists and not self._is_published():
      raise ValueError(
        f'{self.path} exists without a {array_store.MANIFEST}: move it away to write a '
        f'{kind} store there.'
      )
    self.path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.nullcontext() if exists else self._locked():
      self.published = self._is_published()
      if not self.published:
        self._partial.mkdir(exist_ok=True)
    if self.published:
      array_store.Store.open(self.path, kind, self.fields)
      return
    for other in self.path.parent.glob(f'{self.path.name}.partial-*'):
      if other != self._partial:
        logging.warning(
          '%s: unfinished store of other settings; not used.', other
        )

  def _is_published(self) -> bool:
    return (self.path / array_store.MANIFEST).exists()

  def _entry_file(self, index: int) -> pathlib.Path:
    """The manifest of a shard, which makes the shard count."""
    return self._partial / f'shard-{index:06d}.json'

  @contextlib.contextmanager
  def _locked(self) -> Iterator[None]:
    """Keep other processes from adding shards and from publishing."""
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
      self._entry_file(index).exists()
      or (self._partial / array_store.MANIFEST).exists()
      or self._is_published()
    )

  def missing(self, num_shards: int) -> list[int]:
    """List the shards of [0, num_shards) that are not yet written."""
    return [i for i in range(num_shards) if not self.has(i)]

  def rows(self, index: int, name: str) -> int:
    """Return the rows of one array in a shard before publication."""
    return manifests.read_json(self._entry_file(index))[name]['rows']

  def write(self, index: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Write one shard, unless another process has written it meanwhile."""
    written: dict[pathlib.Path, pathlib.Path] = {}
    entry = {}
    try:
      for name, array in arrays.items():
        file = self._partial / array_store.shard_file(name, index)
        draft = drafts.beside(file)
        written[draft] = file
        with open(draft, 'wb') as f:
          np.save(f, np.ascontiguousarray(array), allow_pickle=False)
          f.flush()
          os.fsync(f.fileno())
        entry[name] = {
          'rows': int(array.shape[0]),
          'row_shape': list(array.shape[1:]),
          'dtype': array.dtype.str,
          'checksum': checksums.of_file(draft),
        }
      with self._locked():
        if not self.has(index):
          for draft, file in written.items():
            os.replace(draft, file)
          output_files.write(self._entry_file(index), manifests.sealed(entry))
    except FileNotFoundError:
      with self._locked():  # another process may be publishing right now
        if not self.has(index):
          raise
    finally:
      for draft in written:
        draft.unlink(missing_ok=True)

  def publish(
    self, num_shards: int, meta: Mapping[str, Any] | None = None
  ) -> array_store.Store:
    """Make the store visible by one rename; ValueError when a shard is missing.

    Args:
      meta: further JSON facts for readers, equal in every run.
    """
    with self._locked():
      if not self._is_published():
        shards = self._seal(num_shards, meta or {})
        self._keep_only(self._partial, shards)
        os.rename(self._partial, self.path)
        # Other processes may have begun to write here before the rename.
        self._keep_only(self.path, shards)
    return array_store.Store.open(self.path, self.kind, self.fields)

  def _seal(self, num_shards: int, meta: Mapping[str, Any]) -> list[dict]:
    """Write the manifest, unless a killed process has; return its shards."""
    file = self._partial / array_store.MANIFEST
    if file.exists():
      return manifests.read_json(file)['shards']
    missing = self.missing(num_shards)
    if missing:
      raise ValueError(
        f'{self._partial}: {len(missing)} of {num_shards} shards are missing, '
        f'the first is {missing[0]}.'
      )
    manifest = {
      'schema': array_store.SCHEMA,
      'kind': self.kind,
      'fingerprint': self.fields,
      'meta': dict(meta),
      'shards': [
        manifests.read_json(self._entry_file(i)) for i in range(num_shards)
      ],
    }
    output_files.write(file, manifests.sealed(manifest))
    return manifest['shards']

  @staticmethod
  def _keep_only(folder: pathlib.Path, shards: list[dict]) -> None:
    """Remove the files of a folder that are not part of its store."""
    keep = {
      array_store.shard_file(name, i)
      for i, x in enumerate(shards)
      for name in x
    }
    for file in folder.iterdir():
      if file.name not in keep | {array_store.MANIFEST}:
        file.unlink(missing_ok=True)
