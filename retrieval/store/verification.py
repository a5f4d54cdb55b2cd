# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checksums of stored files, compared when a process first opens them.

A file that was compared is remembered by its size, times and inode, and by the
checksum: in the process, and for later processes in `.NAME.verified` beside its
folder NAME. One line is appended for each file, so several processes may
remember at once. The environment variable RETRIEVAL_VERIFY, which child
processes inherit, chooses between

  once  compare a file unless it is remembered (the default)
  full  compare each file again that this process opens
  off   compare nothing
"""

import contextlib
import functools
import json
import os
import pathlib

from retrieval.store import checksums

VARIABLE = 'RETRIEVAL_VERIFY'
MODES = ('once', 'full', 'off')

_Identity = tuple[int, ...]
_compared: dict[tuple[str, str], _Identity] = {}


def mode() -> str:
  """Return the mode of this process; ValueError for an unknown one."""
  return _known(os.environ.get(VARIABLE) or MODES[0], VARIABLE)


def choose(value: str) -> None:
  """Set the mode of this process and of its children.

  The default, and '', leave the mode that the environment variable names.

  Raises:
    ValueError: for an unknown mode.
  """
  if _known(value or MODES[0], 'verify') != MODES[0]:
    os.environ[VARIABLE] = value
  mode()


def check(
  file: pathlib.Path, expected: str, advice: str, *, remember: bool = True
) -> None:
  """Compare a file with its checksum, as the mode says.

  Args:
    expected: checksum, of a form that `checksums.check` knows.
    advice: what to do about a damaged file, for the error.
    remember: whether later processes need not compare it again.

  Raises:
    ValueError: when the file is missing or damaged.
  """
  chosen = mode()
  if chosen == 'off':
    return
  key = (os.path.abspath(file), expected)
  try:
    identity = _identity(file)
    if _compared.get(key) == identity:
      return
    journal = _Journal.of(os.path.dirname(key[0])) if remember else None
    known = journal is not None and journal.has(file.name, expected, identity)
    if chosen == 'full' or not known:
      checksums.check(file, expected)
    if journal is not None and not known:
      journal.add(file.name, expected, identity)
  except FileNotFoundError:
    raise ValueError(f'{file}: missing; {advice}.') from None
  except ValueError as e:
    raise ValueError(f'{str(e).rstrip(".")}; {advice}.') from None
  _compared[key] = identity


def remember(file: pathlib.Path, checksum: str) -> None:
  """Remember a file whose checksum was just computed, where the mode is once."""
  if mode() != 'once':
    return
  key = (os.path.abspath(file), checksum)
  _compared[key] = _identity(file)
  _Journal.of(os.path.dirname(key[0])).add(file.name, checksum, _compared[key])


def _known(value: str, name: str) -> str:
  if value not in MODES:
    raise ValueError(f'{name}={value!r}: expected one of {MODES}.')
  return value


def _identity(file: pathlib.Path) -> _Identity:
  found = os.stat(file)
  return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


class _Journal:
  """The remembered files of one folder; a lost or damaged one costs time only."""

  def __init__(self, folder: str):
    head, name = os.path.split(folder)
    self._file = os.path.join(head, f'.{name}.verified')
    lines = self._read()
    there = set(os.listdir(folder))
    self._entries = {x[0]: x[1:] for x in lines if x and x[0] in there}
    if len(lines) > 2 * len(self._entries):
      with contextlib.suppress(OSError):
        os.unlink(self._file)
        self._append(self._entries)

  @classmethod
  @functools.lru_cache(1024)
  def of(cls, folder: str) -> '_Journal':
    """The journal of a folder, read once in a process."""
    return cls(folder)

  def has(self, name: str, checksum: str, identity: _Identity) -> bool:
    return self._entries.get(name) == [checksum, *identity]

  def add(self, name: str, checksum: str, identity: _Identity) -> None:
    self._entries[name] = [checksum, *identity]
    with contextlib.suppress(OSError):  # a folder that cannot be written
      self._append({name: self._entries[name]})

  def _append(self, entries: dict[str, list]) -> None:
    text = ''.join(json.dumps([k, *v]) + '\n' for k, v in entries.items())
    with open(self._file, 'ab', buffering=0) as f:
      f.write(text.encode())

  def _read(self) -> list[list]:
    try:
      with open(self._file, 'rb') as f:
        return [_parsed(line) for line in f]
    except OSError:
      return []


def _parsed(line: bytes) -> list:
  """A line of a journal; empty where it is damaged."""
  try:
    found = json.loads(line)
    return found if isinstance(found[0], str) else []
  except (ValueError, LookupError, TypeError, RecursionError):
    return []
