# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A disk without room: the file, the bytes needed and the bytes left."""

import contextlib
import errno
import resource
import sqlite3

import numpy as np
import pytest

from retrieval.store import space, store, store_writer


@contextlib.contextmanager
def _largest_file(num_bytes):
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_asked_before_a_write(tmp_path):
  space.check(tmp_path / 'a' / 'b.npy', 1)
  with pytest.raises(
    space.NoSpaceError, match=r'\d bytes needed, [\d,]+ bytes'
  ):
    space.check(tmp_path / 'a' / 'b.npy', 1 << 60)


@pytest.mark.parametrize('write', ['numpy', 'python'])
def test_short_writes_name_the_file(tmp_path, write):
  array = np.zeros(1 << 18, np.float32)
  with (
    pytest.raises(space.NoSpaceError, match=r'1,048,576 bytes needed') as found,
    _largest_file(4096),
    space.explained(tmp_path, 0),  # the inner one tells more
    space.explained(tmp_path / 'a.npy', array.nbytes),
    open(tmp_path / 'a.npy', 'wb') as f,
  ):
    np.save(f, array) if write == 'numpy' else f.write(array.tobytes())
  assert found.value.filename == str(tmp_path / 'a.npy')
  assert found.value.errno in (errno.EFBIG, errno.ENOSPC)
  assert 'File too large' in str(found.value)
  assert 'raise the quota or the limit' in str(found.value)


def test_a_small_file_names_its_bytes(tmp_path):
  with (
    pytest.raises(space.NoSpaceError, match='5,000 bytes needed'),
    _largest_file(4096),
  ):
    store.write_atomically(tmp_path / 'a.json', 'x' * 5000)
  assert [*tmp_path.iterdir()] == []


def test_a_quota_is_no_limit_of_file_sizes(tmp_path):
  with pytest.raises(space.NoSpaceError, match='(?i)quota exceeded') as found:
    with space.explained(tmp_path, 1):
      raise OSError(errno.EDQUOT, 'as the kernel says')
  assert found.value.errno == errno.EDQUOT


def test_other_errors_pass(tmp_path):
  with pytest.raises(FileNotFoundError), space.explained(tmp_path):
    (tmp_path / 'none').read_bytes()


def test_a_store_names_its_file(tmp_path):
  writer = store_writer.StoreWriter(tmp_path / 'made', 'tokens', {})
  with (
    pytest.raises(space.NoSpaceError, match=r'tokens-000000\.npy'),
    _largest_file(4096),
  ):
    writer.write(0, {'tokens': np.zeros(1 << 18, np.float32)})
  assert [*writer._partial.iterdir()] == []


def test_a_database_without_room_names_its_folder(tmp_path):
  with contextlib.closing(sqlite3.connect(tmp_path / 'ids')) as database:
    with (
      pytest.raises(space.NoSpaceError) as found,
      _largest_file(4096),
      space.explained(tmp_path),
    ):
      database.execute('create table seen (id blob)')
      database.execute('insert into seen values (?)', (b'x' * 9999,))
      database.commit()
  assert found.value.filename == str(tmp_path)
