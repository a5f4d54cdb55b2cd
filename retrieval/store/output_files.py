# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that appear under their names once they are whole."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
from typing import IO, Any

from retrieval.store import drafts

_BUFFER_BYTES = 1 << 20


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
def writing(path: str | os.PathLike, mode: str = 'wb') -> Iterator[IO[Any]]:
  """Open a file to write; it appears under its name once it is whole.

  An exception discards it and leaves an older file in place.

  Args:
    path: of the file, for `check_name`; missing folders are made.
    mode: 'wb', or 'w' for UTF-8 text.

  Raises:
    ValueError: as `check_name`.
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
    if error.filename != str(temporary):
      raise
    raise OSError(error.errno, error.strerror, str(path)) from None
  finally:
    temporary.unlink(missing_ok=True)


def write(path: str | os.PathLike, data: bytes | str) -> None:
  """Write a whole file, as `writing` does; text becomes UTF-8."""
  with writing(path) as f:
    f.write(data.encode() if isinstance(data, str) else data)
