# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checksums of files, which show accidental damage (not forgery).

New checksums are 'xxh3:' and 128 bits of XXH3, which hashes faster than memory
is read; those without a prefix are the first 128 bits of a SHA-256.
"""

import hashlib
import os

import xxhash

_PREFIX = 'xxh3:'
_READ_BYTES = 1 << 20


def of_file(path: str | os.PathLike) -> str:
  """Return 'xxh3:<hex>' of a file's bytes; memory does not grow with them."""
  digest, buffer = xxhash.xxh3_128(), memoryview(bytearray(_READ_BYTES))
  with open(path, 'rb', buffering=0) as f:
    while read := f.readinto(buffer):
      digest.update(buffer[:read])
  return _PREFIX + digest.hexdigest()


def of_bytes(data: bytes) -> str:
  """Return the checksum that a file of these bytes has."""
  return _PREFIX + xxhash.xxh3_128(data).hexdigest()


def check(path: str | os.PathLike, expected: str) -> None:
  """Hold a file against its checksum, of either form.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: when the file is damaged.
  """
  if str(expected).startswith(_PREFIX):
    found = of_file(path)
  else:
    with open(path, 'rb') as f:
      found = hashlib.file_digest(f, 'sha256').hexdigest()[:32]
  if found != expected:
    raise ValueError(
      f'{path}: damaged (checksum {found}, expected {expected}).'
    )
