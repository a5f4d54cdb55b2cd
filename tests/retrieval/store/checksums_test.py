# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files are compared when a process first opens them, and when they changed."""

import os

import numpy as np
import pytest

from retrieval.store import checksums
from tests.retrieval.store import tiny_stores


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
  checksums.check(file, expected, 'make it again')
  for i in range(8):
    file.write_bytes(bytes([ord('s') ^ (1 << i)]) + b'ome bytes')
    with pytest.raises(ValueError, match=r'a\.npy: damaged .*make it again'):
      checksums.check(file, expected, 'make it again')
  with pytest.raises(ValueError, match=r'b\.npy: missing'):
    checksums.check(tmp_path / 'b.npy', expected, 'make it again')


def _store(path):
  return tiny_stores.write_vectors(path, np.arange(8, dtype=np.int32), 2)


@pytest.mark.parametrize(('mode', 'count'), [('once', 2), ('off', 0)])
def test_a_file_is_compared_once(tmp_path, monkeypatch, mode, count):
  hashed, of_file = [], checksums.of_file
  made = _store(tmp_path / 's')
  monkeypatch.setenv(checksums.VARIABLE, mode)
  monkeypatch.setattr(
    checksums, 'of_file', lambda path: (hashed.append(path), of_file(path))[1]
  )
  for _ in range(2):
    assert made.array('vectors')[:].tolist() == [*range(8)]
    made.shard(1, 'vectors')
  assert len(hashed) == count


def test_a_changed_file_is_compared_again(tmp_path):
  made = _store(tmp_path / 's')
  made.verify()
  file = tmp_path / 's' / 'vectors-000001.npy'
  times = file.stat().st_atime_ns, file.stat().st_mtime_ns
  tiny_stores.flip(file)
  os.utime(file, ns=times)  # the time of the last status change tells
  for _ in range(2):
    with pytest.raises(ValueError, match=r'vectors-000001\.npy: damaged'):
      made.array('vectors')[:]
  tiny_stores.flip(file)
  made.array('vectors')[:]


def test_unknown_modes_are_refused(monkeypatch):
  monkeypatch.setenv(checksums.VARIABLE, 'once')  # undone after the test
  with pytest.raises(ValueError, match='twice'):
    checksums.choose('twice')
  monkeypatch.setenv(checksums.VARIABLE, 'off')
  checksums.choose('once')  # the default leaves what was named
  assert checksums.mode() == 'off'
