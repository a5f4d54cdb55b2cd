# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The on-disk form of everything prepared: .npy shards and a manifest.

docs/internals/files.md describes it. `shards` fills a sibling directory shard by shard
and renames it when all are written.
"""

from collections.abc import Callable, Mapping, Sequence
import json
import os
import pathlib
from typing import Any

import numpy as np

from retrieval.store import checksums, locks, manifests, sharded_array

SCHEMA = 1
MANIFEST = 'manifest.json'


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
    self.fingerprint = manifests.fingerprint(
      [manifest['schema'], manifest['kind'], self.fields]
    )

  @classmethod
  def open(
    cls,
    path: 'str | os.PathLike | Store',
    kind: str,
    fingerprint_fields: Mapping[str, Any] | None = None,
  ) -> 'Store':
    """Open a published store; one that is open stays as it is.

    Raises:
      FileNotFoundError: when there is no store.
      ValueError: when it is of another schema or kind, or of other fields.
    """
    if isinstance(path, Store):
      return path
    path = pathlib.Path(path)
    try:
      manifest = manifests.read_json(path / MANIFEST)
    except FileNotFoundError:
      advice = locks.unfinished(path) or 'prepare the data first.'
      raise FileNotFoundError(
        f'{path}: no {kind} store here ({MANIFEST} is missing); {advice}'
      ) from None
    for key, expected in (('schema', SCHEMA), ('kind', kind)):
      if (value := manifest.get(key)) != expected:
        raise ValueError(f'{path}: {key} is {value!r}, expected {expected!r}.')
    fields = expected = manifest['fingerprint']
    if fingerprint_fields is not None:
      expected = json.loads(json.dumps(dict(fingerprint_fields)))
    if expected != fields:
      raise ValueError(
        f'{path}: this {kind} store was made from other data or settings ('
        f'{manifests.difference(expected, fields)}); choose another folder or remove '
        'this one.'
      )
    return cls(path, manifest)

  def check_made_of(self, **sources: str) -> None:
    """Compare fields with the fingerprints of their sources.

    Raises:
      ValueError: when the store was made of others.
    """
    have = {name: self.fields[name] for name in sources}
    if have != sources:
      raise ValueError(
        f'{self.path}: made of others ({manifests.difference(sources, have)}); '
        'make it again.'
      )

  def source(self, name: str, opened: Any, open_source: Callable) -> Any:
    """Return the store that this one was made from.

    Args:
      name: its name in the fields and in `meta`, such as 'tokens'.
      opened: the store, if it is open; None opens the one beside this store.
      open_source: path -> store.

    Raises:
      ValueError: when `opened` is another store.
    """
    if opened is None:
      opened = open_source(self.path.parent / self.meta[name])
    self.check_made_of(**{name: opened.store.fingerprint})
    return opened

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
    dtypes = dict.fromkeys(shard[name]['dtype'] for shard in self._shards)
    return sharded_array.ShardedArray(
      [self._file(i, name) for i in range(self.num_shards)],
      self.rows(name),
      tuple(first[name]['row_shape']),
      np.result_type(*(sharded_array.dtype_of(x) for x in dtypes)),
      [shard[name]['checksum'] for shard in self._shards],
    )

  def shard(self, index: int, name: str) -> np.ndarray:
    """Memory-maps one shard of one array, without caching it."""
    file = self._file(index, name)
    return sharded_array.load(file, self._shards[index][name]['checksum'])

  def _file(self, index: int, name: str) -> pathlib.Path:
    return self.path / shard_file(name, index)

  def verify(self) -> None:
    """Compare the checksums of all files now; ValueError names a damaged one."""
    for index, shard in enumerate(self._shards):
      for name, entry in shard.items():
        file = self._file(index, name)
        checksums.check(file, entry['checksum'], sharded_array.advice(file))


class JoinedStore(Store):
  """The shards of several stores of one kind, in turn; the path is the first's.

  Attributes:
    fields: the fields that are equal in all stores.
  """

  def __init__(self, parts: Sequence[Store]):
    self.path, self.meta = parts[0].path, parts[0].meta
    self.fields = {
      name: value
      for name, value in parts[0].fields.items()
      if all(x.fields.get(name) == value for x in parts)
    }
    self.fingerprint = manifests.fingerprint([x.fingerprint for x in parts])
    self._shards = [shard for x in parts for shard in x._shards]
    self._places = [(x, i) for x in parts for i in range(x.num_shards)]

  def source(self, name: str, opened: Any, open_source: Callable) -> Any:
    """See `Store`: the parts were compared with theirs."""
    del name, open_source
    return opened

  def _file(self, index: int, name: str) -> pathlib.Path:
    part, i = self._places[index]
    return part._file(i, name)
