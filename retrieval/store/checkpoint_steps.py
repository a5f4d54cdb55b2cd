# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The steps of a run's checkpoints on disk, and the checksums of their files.

  <workdir>/checkpoints/<step>/checksums.json  every file of the step: bytes, hash
  <workdir>/checkpoints/best.json              the step that measured best

A step is sealed (its files are hashed) under a hidden name and then renamed, so
that a visible step is whole. Whoever reads a step checks its files first.
"""

from collections.abc import Callable, Mapping
import functools
import json
import os
import pathlib
from typing import Any, NamedTuple

from retrieval.store import checksums, store

CHECKSUMS = 'checksums.json'
BEST = 'best.json'
_FOLDER = 'checkpoints'

Step = int | str | None  # a number, 'best', or the newest: None or ''


class DamagedError(ValueError):
  """A file of a checkpoint is not what was saved."""


def folder_of(workdir: str | os.PathLike) -> pathlib.Path:
  """Folder of a run's checkpoints."""
  return pathlib.Path(workdir).absolute() / _FOLDER


def numbers(folder: pathlib.Path) -> list[int]:
  """Return the visible steps, oldest first; other names are passed over."""
  names = os.listdir(folder) if folder.is_dir() else ()
  digits = (x for x in names if x.isascii() and x.isdigit())
  return sorted(int(x) for x in digits if x == str(int(x)))


def write_sealed(path: pathlib.Path, value: Mapping[str, Any]) -> None:
  """Write JSON with its own checksum, in place at once and on disk."""
  store.write_atomically(path, _sealed(value))


def read_sealed(path: pathlib.Path) -> dict[str, Any]:
  """Read what `write_sealed` wrote.

  Raises:
    OSError: if the file is absent or cannot be read.
    DamagedError: if the file was changed.
  """
  data = path.read_bytes()
  try:
    value = json.loads(data)
    del value['checksum']
    if _sealed(value) == data:
      return value
  except (ValueError, LookupError, TypeError, AttributeError):
    pass
  raise DamagedError(f'{path}: damaged (it differs from its own checksum).')


def seal(path: pathlib.Path, step: int) -> None:
  """Hash all files of a finished step, which may still have a hidden name."""
  files = {
    name: [(path / name).stat().st_size, checksums.of_file(path / name)]
    for name in _files(path)
  }
  write_sealed(path / CHECKSUMS, {'step': step, 'files': files})


class Share(NamedTuple):
  """The part of a check that one of several processes does."""

  index: int = 0
  count: int = 1
  # (whether it failed here) -> whether it failed anywhere; all processes call it
  failed: Callable[[bool], bool] = bool


_ALONE = Share()


def check(path: pathlib.Path, share: Share = _ALONE) -> None:
  """Hold the files of a step against their checksums, once a process.

  Args:
    share: each process of several hashes every `count`-th file.

  Raises:
    DamagedError: for a file that is missing, cut, changed or not of the step.
  """
  found = None
  try:
    _check(path, share)
  except DamagedError as error:
    found = error
  if share.failed(found is not None):
    raise found or DamagedError(f'{path}: damaged, as another process found.')


def _check(path: pathlib.Path, share: Share) -> None:
  if not path.is_dir():
    raise DamagedError(f'{path}: damaged: expected a folder.')
  try:
    sealed, there = read_sealed(path / CHECKSUMS), _files(path)
    if str(sealed['step']) != path.name:
      raise DamagedError(f'{path}: holds checkpoint {sealed["step"]}, renamed.')
    files = sorted(sealed['files'].items())
    for number, (name, (num_bytes, checksum)) in enumerate(files):
      found = (path / name).stat()
      if found.st_size != num_bytes:
        raise DamagedError(
          f'{path / name}: damaged ({found.st_size} bytes, expected '
          f'{num_bytes}).'
        )
      if number % share.count != share.index:
        continue
      identity = (found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
      _check_file(str(path / name), identity, checksum)
  except FileNotFoundError as error:
    raise DamagedError(f'{error.filename}: damaged: no such file.') from None
  except OSError as error:
    raise DamagedError(f'{error.filename}: {error.strerror}.') from None
  for name in sorted(there - {*sealed['files']}):
    raise DamagedError(f'{path / name}: not a file of this checkpoint.')


def newest_whole(folder: pathlib.Path) -> int | None:
  """Return the newest step whose files are all as they were saved, or None."""
  return next((x for x in numbers(folder)[::-1] if _is_whole(folder, x)), None)


def choose(
  folder: pathlib.Path, step: Step = None, share: Share = _ALONE
) -> pathlib.Path:
  """Return the folder of a step, after a check of its files.

  Args:
    folder: of all checkpoints, from `folder_of`.
    step: a number, 'best' (by config.best_metric), or None or '' for the newest.
    share: the part of the check that this process does.

  Raises:
    FileNotFoundError: if there is no such checkpoint.
    DamagedError: for a damaged step; names the file, and the newest whole step.
  """
  while True:
    there = numbers(folder)
    number = _number(folder, step, there)
    try:
      check(folder / str(number), share)
    except DamagedError as error:
      newest = step in (None, '')
      if newest and number not in numbers(folder):
        continue  # the run saved others meanwhile and removed this one
      raise DamagedError(f'{error} {_advice(folder, number)}') from None
    return folder / str(number)


def _number(folder: pathlib.Path, step: Step, there: list[int]) -> int:
  """Return the number of a step that is there."""
  wanted = f'checkpoint {step}'
  if step in (None, ''):
    number, wanted = max(there, default=None), 'a checkpoint'
  elif step == 'best':
    try:
      number = read_sealed(folder / BEST)['step']
    except FileNotFoundError:
      raise FileNotFoundError(
        f'{folder / BEST}: no best checkpoint; expected a run trained with '
        'config.best_metric.'
      ) from None
  elif str(step).isascii() and str(step).isdigit():
    number = int(step)
  else:
    raise ValueError(
      f"Checkpoint {step!r}: expected a step's number, 'best', or '' for the "
      'newest.'
    )
  if number not in there:
    found = f'the steps {there}' if there else 'none'
    raise FileNotFoundError(
      f'{folder}: expected {wanted}, found {found}; train first, with the same '
      '--workdir.'
    )
  return number


def _advice(folder: pathlib.Path, damaged: int) -> str:
  """Return what a user can do about a damaged step."""
  whole = newest_whole(folder)
  if whole is None:
    return (
      f'No other checkpoint is whole: remove {folder} and run again from the '
      'start.'
    )
  if whole > damaged:
    return f'The newest whole checkpoint is {whole}.'
  later = ' and '.join(
    str(folder / str(x)) for x in numbers(folder) if x > whole
  )
  return (
    f'The newest whole checkpoint is {whole}: remove {later} and the same '
    f'command continues from step {whole}.'
  )


def _is_whole(folder: pathlib.Path, step: int) -> bool:
  try:
    check(folder / str(step))
  except DamagedError:
    return False
  return True


@functools.lru_cache(maxsize=1 << 16)
def _check_file(file: str, identity: tuple[int, ...], checksum: str) -> None:
  """Hold a file against its checksum; a file that passed is not read again."""
  del identity  # changes with the file
  try:
    checksums.check(file, checksum)
  except ValueError as error:
    raise DamagedError(str(error)) from None


def _files(path: pathlib.Path) -> set[str]:
  """Return the files below a step's folder, other than the checksums."""
  files = (x.relative_to(path) for x in path.rglob('*') if not x.is_dir())
  return {x.as_posix() for x in files} - {CHECKSUMS}


def _sealed(value: Mapping[str, Any]) -> bytes:
  """Return the only bytes that stand for a value."""
  checksum = checksums.of_bytes(json.dumps(value, sort_keys=True).encode())
  text = json.dumps({'checksum': checksum} | value, indent=1, sort_keys=True)
  return f'{text}\n'.encode()
