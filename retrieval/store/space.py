# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Room on the disk: asked for before big writes, named when it runs out."""

from collections.abc import Iterator
import contextlib
import errno
import os
import pathlib
import shutil

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
  except OSError as error:
    # NumPy's short writes carry no number: 'N requested and M written'.
    short = error.errno is None and ' requested and ' in str(error)
    if not short and error.errno not in _FULL:
      raise
    raise _error(error.errno or errno.ENOSPC, path, needed) from error


def _error(code: int, path: str | os.PathLike, needed: int) -> NoSpaceError:
  wanted = f'{needed:,} bytes needed, ' if needed else ''
  why = f'{os.strerror(code)} ({wanted}{left(path):,} bytes left)'
  return NoSpaceError(code, f'{why}; free some and run again', str(path))
