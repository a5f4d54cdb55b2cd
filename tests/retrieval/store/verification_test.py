# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files are compared when a process first opens them, and when they changed."""

import os

import numpy as np
import pytest

from retrieval.store import checksums, store_writer, verification


@pytest.fixture
def hashed(monkeypatch):
  """Files whose checksums were computed."""
  found, check = [], checksums.check
  monkeypatch.setattr(
    checksums,
    'check',
    lambda path, want: (found.append(path), check(path, want)),
  )
  return found


def _store(path):
  writer = store_writer.StoreWriter(path, 'test', {})
  for i in range(2):
    writer.write(i, {'x': np.arange(4, dtype=np.int32)})
  return writer.publish(2)


def _flip(file):
  data = bytearray(file.read_bytes())
  data[-1] ^= 1
  file.write_bytes(data)


@pytest.mark.parametrize(('mode', 'count'), [('once', 2), ('off', 0)])
def test_a_file_is_compared_once(tmp_path, hashed, monkeypatch, mode, count):
  monkeypatch.setenv(verification.VARIABLE, mode)
  made = _store(tmp_path / 's')
  assert not hashed  # before anything is read
  for _ in range(2):
    assert made.array('x')[:].tolist() == [*range(4), *range(4)]
    made.shard(1, 'x')
  assert len(hashed) == count


def test_a_changed_file_is_compared_again(tmp_path):
  made = _store(tmp_path / 's')
  made.verify()
  file = tmp_path / 's' / 'x-000001.npy'
  times = file.stat().st_atime_ns, file.stat().st_mtime_ns
  _flip(file)
  os.utime(file, ns=times)  # the time of the last status change tells
  for _ in range(2):
    with pytest.raises(ValueError, match=r'x-000001\.npy: damaged'):
      made.array('x')[:]
  _flip(file)
  made.array('x')[:]


def test_unknown_modes_are_refused(monkeypatch):
  monkeypatch.setenv(verification.VARIABLE, 'once')  # undone after the test
  with pytest.raises(ValueError, match='twice'):
    verification.choose('twice')
  monkeypatch.setenv(verification.VARIABLE, 'off')
  verification.choose('once')  # the default leaves what was named
  assert verification.mode() == 'off'
