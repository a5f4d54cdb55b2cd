# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that appear under their names once they are whole."""

from collections.abc import Iterator
import contextlib
import errno
import os
import pathlib
import re
import shutil
from typing import IO, Any

from retrieval.store import drafts

_BUFFER_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Of errors without a number, such as those of C++ and NumPy's short write.
_FULL_TEXT = re.compile(
  r'No space left on device|quota exceeded|File too large|disk is full|'
  r'\d+ requested and \d+ written',
  re.IGNORECASE,
)


class FullError(OSError):
  """A disk is full; names the file, the bytes needed and the bytes left."""


def is_full(error: BaseException) -> bool:
  """Whether an error says that a disk is full, or a file as large as it may be."""
  number = getattr(error, 'errno', None)
  return number in _FULL or bool(
    number is None and _FULL_TEXT.search(str(error))
  )


def space_left(path: str | os.PathLike) -> str:
  """Tell the bytes that are left on the disk of a file or a folder."""
  path = pathlib.Path(path)
  folder = path if path.is_dir() else _folder_above(path.absolute())
  return f'{shutil.disk_usage(folder).free:,} bytes are left on its disk'


def check_name(path: str | os.PathLike) -> None:
  """Raise ValueError for a folder, a device or a pipe, and for a name below a file."""
  path = pathlib.Path(path)
  if path.exists() and not path.is_file():
    what = 'a folder' if path.is_dir() else 'a device or a pipe'
    raise ValueError(f'{path}: {what}; expected the name of a file to write.')
  _folder_above(path)


def check_writable(path: str | os.PathLike, *, is_folder: bool = False) -> None:
  """Check that a command will be able to write its output; nothing stays behind.

  Args:
    path: of a file, or of a folder of files; folders above it may be missing.

  Raises:
    ValueError: as `check_name`, and for a folder that is a file.
    OSError: naming the path, where the system refuses a new file.
  """
  path = pathlib.Path(path)
  if not is_folder:
    check_name(path)
  folder = _folder_above(path / 'file' if is_folder else path)
  probe = drafts.beside(folder / path.name)
  try:
    probe.touch()
  except OSError as error:
    text = f'cannot be written ({error.strerror})'
    raise OSError(error.errno, text, str(path)) from None
  finally:
    probe.unlink(missing_ok=True)


def _folder_above(path: pathlib.Path) -> pathlib.Path:
  """Return the nearest folder above that exists."""
  above = next((x for x in path.parents if os.path.lexists(x)), path.parent)
  if os.path.lexists(above) and not above.is_dir():
    raise ValueError(f'{path}: {above} is not a folder.')
  return above


@contextlib.contextmanager
def writing(
  path: str | os.PathLike, mode: str = 'wb', size: int = 0
) -> Iterator[IO[Any]]:
  """Open a file to write; it appears under its name once it is whole.

  An exception discards it and leaves an older file in place.

  Args:
    path: of the file, for `check_name`; missing folders are made.
    mode: 'wb', or 'w' for UTF-8 text.
    size: bytes that will be written, for the error of a full disk; 0: unknown.

  Raises:
    ValueError: as `check_name`.
    FullError: when the disk is full.
  """
  path = pathlib.Path(path)
  check_name(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = drafts.beside(path)
  encoding = None if 'b' in mode else 'utf-8'
  try:
    with open(temporary, mode, _BUFFER_BYTES, encoding) as f:
      yield f
      f.flush()
      os.fsync(f.fileno())
    os.replace(temporary, path)
  except OSError as error:
    if is_full(error) and error.filename in (None, str(temporary)):
      if temporary.exists():
        size = max(size, temporary.stat().st_size + 1)
        temporary.unlink()
      what = error.strerror or 'No space left on device'
      text = f'{what}: it needs {size:,} bytes or more, {space_left(path)}'
      raise FullError(errno.ENOSPC, text, str(path)) from None
    if error.filename != str(temporary):
      raise
    raise OSError(error.errno, error.strerror, str(path)) from None
  finally:
    temporary.unlink(missing_ok=True)


def write(path: str | os.PathLike, data: bytes | str) -> None:
  """Write a whole file, as `writing` does; text becomes UTF-8."""
  data = data.encode() if isinstance(data, str) else data
  with writing(path, size=len(data)) as f:
    f.write(data)
