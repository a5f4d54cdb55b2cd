# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The manifest of a store, and the names of its files."""

from collections.abc import Iterator, Mapping, Sequence
import json
import os
import pathlib
from typing import Any

from retrieval.store import checksums

SCHEMA = 1
FILE = 'manifest.json'
_KEYS = {'schema', 'kind', 'fingerprint', 'meta', 'shards'}
_CHECKSUM = 'checksum'
_ENTRY = {'rows': int, 'row_shape': list, 'dtype': str, 'checksum': str}


def dump(content: Any) -> str:
  """Write JSON for people to read; equal values give equal texts."""
  return json.dumps(content, indent=1, sort_keys=True) + '\n'


def sealed(content: Mapping[str, Any]) -> str:
  """Write a JSON object with a checksum of its content, as `dump` does."""
  content = json.loads(json.dumps(content))  # as it will be read
  return dump(content | {_CHECKSUM: _checksum(content)})


def _checksum(content: Mapping[str, Any]) -> str:
  return checksums.of_bytes(dump(content).encode())


def read_json(file: pathlib.Path, missing: str = '') -> dict[str, Any]:
  """Read a JSON object, and compare its checksum if it has one.

  Raises:
    FileNotFoundError: when there is no such file; `missing` says so.
    ValueError: when it is damaged.
  """
  content = read_object(file, missing)
  expected = content.pop(_CHECKSUM, None)  # files of earlier writers have none
  if expected is not None and expected != _checksum(content):
    raise ValueError(
      f'{file}: damaged (checksum {_checksum(content)}, expected {expected}).'
    )
  return content


def read_object(file: pathlib.Path, missing: str = '') -> dict[str, Any]:
  """Read a JSON object as it stands, such as another program's.

  Raises:
    FileNotFoundError: when there is no such file; `missing` says so.
    ValueError: when it is damaged.
  """
  try:
    content = json.loads(file.read_text(encoding='utf-8'))
  except FileNotFoundError:
    raise FileNotFoundError(missing or f'{file}: no such file.') from None
  except (ValueError, RecursionError) as e:
    raise ValueError(f'{file}: not JSON ({e}); it is damaged.') from None
  if not isinstance(content, dict):
    raise ValueError(f'{file}: not a JSON object; it is damaged.')
  return content


def shard_file(name: str, index: int) -> str:
  """Name of the file of one shard of one array."""
  return f'{name}-{index:06d}.npy'


def files(
  path: pathlib.Path, shards: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[pathlib.Path, dict[str, Any]]]:
  """Yield each .npy file of a store and its entry in the manifest."""
  for i, shard in enumerate(shards):
    for name, entry in shard.items():
      yield path / shard_file(name, i), entry


def check_exists(file: pathlib.Path) -> None:
  """Raise ValueError for a missing file of a store."""
  if not file.exists():
    raise ValueError(
      f'{file}: missing from its store; remove {file.parent} and prepare it '
      'again.'
    )


def keep_only(
  folder: pathlib.Path, shards: Sequence[Mapping[str, Any]]
) -> None:
  """Remove the files of a folder that are not part of its store."""
  keep = {folder / FILE, *(file for file, _ in files(folder, shards))}
  for file in {*folder.iterdir()} - keep:
    file.unlink(missing_ok=True)


def read(
  path: str | os.PathLike, kind: str, fields: Mapping[str, Any] | None
) -> dict[str, Any]:
  """Read a store's manifest and check it; `store.Store.open` has the Args."""
  path = pathlib.Path(path)
  manifest = read_json(
    path / FILE,
    f'{path}: no {kind} store here ({FILE} is missing); prepare the data first.',
  )
  if _KEYS - set(manifest) or not _is_whole(manifest):
    raise ValueError(
      f'{path / FILE}: not a manifest, which has {sorted(_KEYS)} and for each '
      f'file {sorted(_ENTRY)}.'
    )
  for key, want in (('schema', SCHEMA), ('kind', kind)):
    if manifest[key] != want:
      raise ValueError(
        f'{path}: {key} is {manifest[key]!r}, expected {want!r}.'
      )
  found = manifest['fingerprint']
  want = found if fields is None else json.loads(json.dumps(dict(fields)))
  if want != found:
    raise ValueError(
      f'{path}: this {kind} store was made from other data or settings ('
      f'{difference(want, found)}); choose another folder or remove this one.'
    )
  for file, _ in files(path, manifest['shards']):
    check_exists(file)
  return manifest


def _is_whole(manifest: Mapping[str, Any]) -> bool:
  """Whether the values of a manifest have the types that readers expect."""
  try:
    entries = [x for shard in manifest['shards'] for x in shard.values()]
    return all(
      isinstance(manifest[name], dict) for name in ('fingerprint', 'meta')
    ) and all(isinstance(x[k], t) for x in entries for k, t in _ENTRY.items())
  except (TypeError, AttributeError, KeyError):
    return False


def difference(want: Mapping, have: Mapping) -> str:
  """List the fields that differ, and their values."""
  keys = sorted(k for k in {*want, *have} if want.get(k) != have.get(k))
  return '; '.join(
    f'{k}: expected {want.get(k)!r}, found {have.get(k)!r}' for k in keys
  )
