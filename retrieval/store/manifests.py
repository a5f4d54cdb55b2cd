# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON files with a checksum of their content: the manifests of everything stored."""

from collections.abc import Mapping
import hashlib
import json
import pathlib
from typing import Any

from retrieval.store import checksums

_CHECKSUM = 'checksum'


def fingerprint(obj: Any) -> str:
  """Hash a JSON value; equal values give equal hex strings."""
  text = json.dumps(obj, sort_keys=True, separators=(',', ':'))
  return hashlib.sha256(text.encode()).hexdigest()[:32]


def dump(content: Any) -> str:
  """Write JSON for people to read; equal values give equal texts."""
  return json.dumps(content, indent=1, sort_keys=True) + '\n'


def sealed(content: Mapping[str, Any]) -> str:
  """Write a JSON object with a checksum of its content, as `dump` does."""
  content = json.loads(json.dumps(content))  # as it will be read
  return dump(content | {_CHECKSUM: checksums.of_bytes(dump(content).encode())})


def read_json(file: pathlib.Path, missing: str = '') -> dict[str, Any]:
  """Read a JSON object of `sealed`, and compare its checksum; errors as below."""
  content = read_object(file, missing)
  expected = content.pop(_CHECKSUM, None)
  checksum = checksums.of_bytes(dump(content).encode())
  if checksum != expected:
    raise ValueError(
      f'{file}: damaged (checksum {checksum}, expected {expected}).'
    )
  return content


def read_object(file: pathlib.Path, missing: str = '') -> dict[str, Any]:
  """Read a JSON object without a checksum, such as another program's.

  Raises:
    FileNotFoundError: when there is no such file; `missing` says so.
    ValueError: when it is damaged.
  """
  try:
    content = json.loads(file.read_text(encoding='utf-8-sig'))
  except FileNotFoundError:
    raise FileNotFoundError(missing or f'{file}: no such file.') from None
  except (ValueError, RecursionError) as e:
    raise ValueError(f'{file}: not JSON ({e}); it is damaged.') from None
  if not isinstance(content, dict):
    raise ValueError(f'{file}: not a JSON object; it is damaged.')
  return content


def difference(want: Mapping, have: Mapping) -> str:
  """List the fields that differ, and their values."""
  keys = sorted(k for k in {*want, *have} if want.get(k) != have.get(k))
  return '; '.join(
    f'{k}: expected {want.get(k)!r}, found {have.get(k)!r}' for k in keys
  )
