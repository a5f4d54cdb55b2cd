# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checksums of files: 128 bits of XXH3, which show accidental damage, not forgery.

A process compares a file when it first opens it. The environment variable
RETRIEVAL_VERIFY, which child processes inherit, is 'once', or 'off' to compare nothing.
"""

from collections.abc import Sequence
import hashlib
import os
import pathlib

import xxhash

VARIABLE = 'RETRIEVAL_VERIFY'
MODES = ('once', 'off')
_PREFIX = 'xxh3:'

# (path, checksum) of what this process has compared -> size, inode, times
_compared: dict[tuple[str, str], tuple[int, ...]] = {}


def of_file(path: str | os.PathLike) -> str:
  """Return 'xxh3:<hex>' of a file's bytes; memory does not grow with them."""
  with open(path, 'rb', buffering=0) as f:
    return _PREFIX + hashlib.file_digest(f, xxhash.xxh3_128).hexdigest()


def hash_files(paths: Sequence[str | os.PathLike]) -> str:
  """Hash the bytes of files, in this order."""
  digest = hashlib.sha256()
  for path in paths:
    with open(path, 'rb', buffering=0) as f:
      hashlib.file_digest(f, lambda: digest)
  return digest.hexdigest()[:32]


def of_bytes(data: bytes) -> str:
  """Return the checksum that a file of these bytes has."""
  return _PREFIX + xxhash.xxh3_128(data).hexdigest()


def mode() -> str:
  """Return the mode of this process; ValueError for an unknown one."""
  value = os.environ.get(VARIABLE) or MODES[0]
  if value not in MODES:
    raise ValueError(f'{VARIABLE}={value!r}: expected one of {MODES}.')
  return value


def choose(value: str) -> None:
  """Set the mode of this process and its children; the default leaves it as it is."""
  if value not in ('', MODES[0]):
    os.environ[VARIABLE] = value
  mode()


def check(file: pathlib.Path, expected: str, advice: str) -> None:
  """Compare a file with its checksum, unless this process has done so.

  Raises:
    ValueError: when the file is missing or damaged; it ends with the advice.
  """
  if mode() == 'off':
    return
  key = (os.path.abspath(file), expected)
  try:
    stat = os.stat(file)
    times = stat.st_mtime_ns, stat.st_ctime_ns
    identity = stat.st_size, stat.st_ino, *times
    if _compared.get(key) == identity:
      return
    checksum = of_file(file)
  except FileNotFoundError:
    raise ValueError(f'{file}: missing; {advice}.') from None
  if checksum != expected:
    raise ValueError(
      f'{file}: damaged (checksum {checksum}, expected {expected}); {advice}.'
    )
  _compared[key] = identity
