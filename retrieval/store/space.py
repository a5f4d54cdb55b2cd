# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Room on the disk: asked for before big writes, named when it runs out."""

from collections.abc import Iterator
import contextlib
import errno
import os
import pathlib
import re
import shutil
import sqlite3

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SQLITE_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE}
# Of errors without a number, such as those of C++; the last is NumPy's short write.
_FULL_TEXT = re.compile(
  r'No space left on device|quota exceeded|File too large|'
  r'\d+ requested and \d+ written',
  re.IGNORECASE,
)


class NoSpaceError(OSError):
  """A file did not fit; the message tells the bytes needed and left."""


def left(path: str | os.PathLike) -> int:
  """Return the free bytes of the file system where a path is or will be."""
  path = pathlib.Path(path).absolute()
  there = next(p for p in (path, *path.parents) if p.exists())
  return shutil.disk_usage(there).free


def check(path: str | os.PathLike, needed: int) -> None:
  """Raise NoSpaceError unless `needed` bytes are free for a file or folder."""
  if left(path) < needed:
    raise _error(errno.ENOSPC, path, needed)


def is_full(error: BaseException) -> bool:
  """Return whether an error is a full disk, a quota or a limit on file sizes."""
  if isinstance(error, OSError) and error.errno is not None:
    return error.errno in _FULL
  if isinstance(error, sqlite3.Error):
    return getattr(error, 'sqlite_errorcode', 0) in _SQLITE_FULL
  return _FULL_TEXT.search(str(error)) is not None


def error_of(
  error: BaseException, path: str | os.PathLike, needed: int = 0
) -> NoSpaceError:
  """Return the error, for which `is_full` holds, with a file and its room."""
  return _error(getattr(error, 'errno', None), path, needed)


@contextlib.contextmanager
def explained(path: str | os.PathLike, needed: int = 0) -> Iterator[None]:
  """Name the file and its room where a write in the body does not fit.

  Args:
    path: file or folder that the body writes.
    needed: its bytes, where known.

  Raises:
    NoSpaceError: for a full disk, a quota or a limit on file sizes.
  """
  try:
    yield
  except NoSpaceError:
    raise
  except Exception as error:
    if not is_full(error):
      raise
    raise error_of(error, path, needed) from error


def _error(
  code: int | None, path: str | os.PathLike, needed: int
) -> NoSpaceError:
  free, wanted = left(path), f'{needed:,} bytes needed, ' if needed else ''
  if code is None:  # a short write does not tell which limit it met
    code = errno.EFBIG if free > needed > 0 else errno.ENOSPC
  advice = 'free some'
  if free > needed > 0:
    advice = 'raise the quota or the limit of files or their sizes'
  why = f'{os.strerror(code)} ({wanted}{free:,} bytes left)'
  return NoSpaceError(code, f'{why}; {advice} and run again', str(path))
