# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What is compared when, what is remembered, and what never is."""

import os
import pathlib

import numpy as np
import pytest

from retrieval.store import checksums, store_writer, verification


@pytest.fixture
def hashed(monkeypatch):
  """Names of the files whose checksums were computed, in a new process."""
  names, check = [], checksums.check

  def counted(path, expected):
    names.append(pathlib.Path(path).name)
    check(path, expected)

  monkeypatch.setattr(checksums, 'check', counted)
  return names


def _forget():
  """Be another process."""
  verification._compared.clear()
  verification._Journal.of.cache_clear()


def _store(path):
  writer = store_writer.StoreWriter(path, 'test', {})
  for i in range(2):
    writer.write(i, {'x': np.arange(4, dtype=np.int32)})
  return writer.publish(2)


def _flip(file):
  data = bytearray(file.read_bytes())
  data[-1] ^= 1
  file.write_bytes(data)


def test_a_file_is_compared_once(tmp_path, hashed):
  made = _store(tmp_path / 's')
  assert not hashed  # before anything is read
  assert made.array('x')[:].tolist() == [*range(4), *range(4)]
  assert hashed == ['x-000000.npy', 'x-000001.npy']
  made.array('x')[:]
  made.shard(1, 'x')
  _forget()
  made.array('x')[:]
  assert len(hashed) == 2
  assert (tmp_path / '.s.verified').is_file()


def test_a_changed_file_is_compared_again(tmp_path, hashed):
  made = _store(tmp_path / 's')
  made.verify()
  file = tmp_path / 's' / 'x-000001.npy'
  times = file.stat().st_atime_ns, file.stat().st_mtime_ns
  _flip(file)
  os.utime(file, ns=times)  # the time of the last status change tells
  for _ in range(2):
    with pytest.raises(ValueError, match=r'x-000001\.npy: damaged \(checksum'):
      made.array('x')[:]
    _forget()
  _flip(file)
  made.array('x')[:]


@pytest.mark.parametrize(
  ('mode', 'count'), [('once', 2), ('full', 4), ('off', 0)]
)
def test_modes(tmp_path, hashed, monkeypatch, mode, count):
  monkeypatch.setenv(verification.VARIABLE, mode)
  made = _store(tmp_path / 's')
  for _ in range(2):
    _forget()
    made.array('x')[:]
    made.array('x')[:]
  assert len(hashed) == count


def test_unknown_modes_are_refused(monkeypatch):
  monkeypatch.setenv(verification.VARIABLE, 'once')  # undone after the test
  with pytest.raises(ValueError, match="verify='twice': expected one of"):
    verification.choose('twice')
  verification.choose('full')
  verification.choose('once')  # the default leaves what was named
  assert verification.mode() == 'full'
  monkeypatch.setenv(verification.VARIABLE, 'never')
  with pytest.raises(ValueError, match="RETRIEVAL_VERIFY='never'"):
    verification.mode()


@pytest.mark.parametrize('text', [b'\xff[\n[1]\nnull\n', b'["x-000000.npy"]\n'])
def test_a_damaged_cache_is_ignored(tmp_path, hashed, text):
  made = _store(tmp_path / 's')
  cache = tmp_path / '.s.verified'
  cache.write_bytes(text)
  made.verify()
  _forget()
  made.verify()
  assert len(hashed) == 2


def test_files_that_are_gone_leave_the_cache(tmp_path):
  made = _store(tmp_path / 's')
  made.verify()
  cache = tmp_path / '.s.verified'
  cache.write_text(cache.read_text().replace('x-', 'old-') * 5)
  _forget()
  made.verify()
  assert len(cache.read_text().splitlines()) == 2


def test_nothing_is_written_where_nothing_may_be(tmp_path, hashed, monkeypatch):
  made = _store(tmp_path / 's')
  (tmp_path / '.s.verified').mkdir()  # as in a folder that cannot be written
  made.verify()
  made.verify()
  assert len(hashed) == 2
  file = tmp_path / 'a'
  file.write_bytes(b'')
  verification.check(file, checksums.of_file(file), 'x', remember=False)
  assert sorted(os.listdir(tmp_path)) == ['.s.verified', 'a', 's']
