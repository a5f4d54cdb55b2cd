# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checksums of files: known values and every flipped bit."""

import pytest

from retrieval.store import checksums


def test_known_values(tmp_path):
  empty, long = tmp_path / 'empty', tmp_path / 'long'
  empty.write_bytes(b'')
  long.write_bytes(bytes(range(256)) * 10_000)  # more than one read
  assert checksums.of_file(empty) == 'xxh3:99aa06d3014798d86001c324468d497f'
  assert checksums.of_file(long) == checksums.of_bytes(long.read_bytes())


def test_a_flipped_bit_is_found(tmp_path):
  file = tmp_path / 'a.npy'
  file.write_bytes(b'some bytes')
  expected = checksums.of_file(file)
  checksums.check(file, expected)
  for i in range(8):
    file.write_bytes(bytes([ord('s') ^ (1 << i)]) + b'ome bytes')
    with pytest.raises(ValueError, match=r'a\.npy: damaged .*expected '):
      checksums.check(file, expected)
  with pytest.raises(FileNotFoundError):
    checksums.check(tmp_path / 'b.npy', expected)
