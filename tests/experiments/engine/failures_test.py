# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Failures of a user, a disk or a machine take one line; bugs keep a traceback."""

from concurrent import futures
import errno
import gzip
import json
import os

import jax
import pytest

from experiments.engine import failures
from retrieval.store import space


def _caught(work):
  try:
    work()
  except Exception as error:  # noqa: BLE001
    return error


def _wrapped(first, second):
  def work():
    try:
      raise first
    except Exception as error:
      raise second from error

  return _caught(work)


@pytest.mark.parametrize(
  'error',
  [
    OSError(errno.ENOSPC, 'No space left on device'),
    OSError(errno.EDQUOT, 'Disk quota exceeded'),
    OSError(errno.EFBIG, 'File too large'),
    OSError('303360 requested and 210912 written'),
    jax.errors.JaxRuntimeError('INTERNAL: write: No space left on device'),
    _wrapped(OSError(errno.ENOSPC, 'full'), RuntimeError('save failed')),
    ExceptionGroup('all', [ValueError('x'), OSError(errno.ENOSPC, 'full')]),
  ],
)
def test_full_disk_tells_the_folder_and_the_room(error, tmp_path):
  line = failures.line_of(error, str(tmp_path))
  assert line.startswith(f'{tmp_path}: ') and '\n' not in line
  assert 'bytes left); free some and run again' in line


def test_full_disk_tells_the_file():
  error = _wrapped(
    space.NoSpaceError(errno.ENOSPC, '1 needed', '/a/b.npy'), ValueError('x')
  )
  assert failures.line_of(error) == '/a/b.npy: 1 needed'

  def write():
    with open('/dev/full', 'w') as f:
      f.write('x')
      f.flush()

  assert failures.line_of(_caught(write)).startswith('/dev/full: No space left')


@pytest.mark.parametrize(
  'error, part',
  [
    (MemoryError('Unable to allocate 7 TiB'), 'out of memory: Unable'),
    (OSError(errno.ENOMEM, 'Cannot allocate memory'), 'out of memory: '),
    (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: no\nroom'), 'no room'),
    (futures.BrokenExecutor('A process died'), 'worker process was killed'),
    (
      RuntimeError('Worker process was terminated unexpectedly with -9'),
      'worker process was killed',
    ),
    (_wrapped(MemoryError(), RuntimeError('x')), 'out of memory'),
  ],
)
def test_want_of_memory_is_one_line(error, part):
  line = failures.line_of(error)
  assert part in line and '\n' not in line


def test_damaged_files_are_named(tmp_path):
  path = tmp_path / 'a.json'

  def text():
    return path.read_text(encoding='utf-8')

  def parse():
    with open(path) as f:
      return json.load(f)

  def unpack():
    with gzip.open(os.fspath(path)) as file:
      return file.read()

  def mapping():
    with open(path) as f:
      return json.load(f)['weights']

  def disk():
    with open(path) as f:
      raise OSError(errno.EIO, f'Input/output error {f.fileno()}')

  for data, read in (
    (b'{}', mapping),
    (b'[' * 99_999, parse),
    (b'', disk),
    (b'\xff', text),
    (b'{"a"', parse),
    (gzip.compress(b'text' * 99)[:-9], unpack),
  ):
    path.write_bytes(data)
    line = failures.line_of(_caught(read))
    assert line.startswith(f'{path}: ') and '\n' not in line, line


@pytest.mark.parametrize(
  'error', [RuntimeError('x'), TypeError('x'), AttributeError('x')]
)
def test_bugs_keep_their_traceback(error):
  assert failures.line_of(error) is None
