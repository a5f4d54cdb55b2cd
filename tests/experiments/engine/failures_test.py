# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Failures of a user, a disk or a machine take one line; bugs keep a traceback."""

import errno

import jax
import pytest

from experiments.engine import failures
from retrieval.store import output_files


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
    OSError(errno.EDQUOT, 'Disk quota exceeded'),
    OSError('303360 requested and 210912 written'),
    jax.errors.JaxRuntimeError('INTERNAL: write: No space left on device'),
    _wrapped(OSError(errno.ENOSPC, 'full'), RuntimeError('save failed')),
    ExceptionGroup('all', [ValueError('x'), OSError(errno.ENOSPC, 'full')]),
  ],
)
def test_full_disk_tells_a_file_or_the_folder(error, tmp_path):
  line = failures.line_of(error, str(tmp_path))
  assert line.startswith(f'{tmp_path}: ') and '\n' not in line
  assert 'bytes are left' in line and 'free some space' in line
  assert 'Errno' not in line
  named = OSError(errno.ENOSPC, 'No space left', f'{tmp_path}/a/b.npy')
  assert failures.line_of(named).startswith(f'{tmp_path}/a/b.npy: No space le')
  named = output_files.FullError(errno.ENOSPC, 'it needs 3', '/b.npy')
  assert failures.line_of(named).startswith('/b.npy: it needs 3; free some')


@pytest.mark.parametrize(
  'error, part',
  [
    (MemoryError('Unable to allocate 7 TiB'), 'out of memory: Unable'),
    (OSError(errno.ENOMEM, 'Cannot allocate memory'), 'out of memory: '),
    (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: no\nroom'), 'no room'),
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


@pytest.mark.parametrize(
  'error', [RuntimeError('x'), TypeError('x'), AttributeError('x')]
)
def test_bugs_keep_their_traceback(error):
  assert failures.line_of(error) is None
