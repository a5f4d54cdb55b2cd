# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checksums of files, which show accidental damage (not forgery): 128 bits of XXH3."""

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
  """Compare a file with its checksum.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: when the file is damaged.
  """
  found = of_file(path)
  if found != expected:
    raise ValueError(
      f'{path}: damaged (checksum {found}, expected {expected}).'
    )
