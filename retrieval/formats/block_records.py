# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""block_records.npy: texts of blocks as a pickled array, read one by one.

The Hugging Face port of REALM stores its blocks as an array of Python bytes.
The reader does not execute the pickle; its memory grows by eight bytes a block.
"""

import array
from collections.abc import Iterable, Iterator
import contextlib
import os
import pathlib
from typing import BinaryIO

import numpy as np

from retrieval.formats import plain_pickle
from retrieval.store import store

_BYTES = ('SHORT_BINBYTES', 'BINBYTES', 'BINBYTES8')
_AROUND = {'MARK', 'APPENDS', 'APPEND', 'FRAME', 'TUPLE', 'STOP', 'MEMOIZE'}
_STARTS = {'numpy.core.multiarray _reconstruct', 'numpy ndarray', 'numpy dtype'}
_STARTS |= {'numpy._core.multiarray _reconstruct'}
# Pickle, protocol 3, of an array of objects, up to its list.
_BEFORE = (
  b'\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n'
  b'K\x00\x85C\x01b\x87R(K\x01JNUMBER\x85cnumpy\ndtype\n'
  b'X\x02\x00\x00\x00O8\x89\x88\x87R(K\x03X\x01\x00\x00\x00|NNN'
  b'J\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89]'
)


def read(path: str | os.PathLike) -> Iterator[bytes]:
  """Yield the text of each block, UTF-8.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: when it is not an array of bytes, or would execute something.
  """
  path = pathlib.Path(path)
  with _open(path) as file:
    yield from _read(path, file, _count(file))


def count(path: str | os.PathLike) -> int:
  """Return the number of blocks in a file's header.

  Raises:
    ValueError: when it is not an array of objects.
  """
  with _open(path) as file:
    return _count(file)


@contextlib.contextmanager
def _open(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Open a file; errors name it."""
  with open(path, 'rb') as file:
    try:
      yield file
    except ValueError as e:
      raise ValueError(f'{path}: {e}') from None


def _count(file) -> int:
  """Read the header, up to the start of the pickle."""
  if np.lib.format.read_magic(file) == (1, 0):
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
  else:
    shape, _, dtype = np.lib.format.read_array_header_2_0(file)
  if dtype != np.dtype(object) or len(shape) != 1:
    raise ValueError(f'an array {dtype} {list(shape)}; expected [n] of bytes.')
  return shape[0]


def _read(path: pathlib.Path, file, expected: int) -> Iterator[bytes]:
  found = 0
  machine = plain_pickle.Machine(
    dict.fromkeys(_STARTS, lambda *arguments: arguments)
  )
  places = _Places(path)
  listing = False
  for name, value, position in plain_pickle.operations(file):
    if name in ('GLOBAL', 'STACK_GLOBAL') and listing:
      raise ValueError(f'{name} among the texts; refused, nothing executed.')
    if not listing:
      # The beginning of an array of objects, up to its list.
      places.remember(name, value, position)
      machine.step(name, value, position)
      listing = name == 'EMPTY_LIST'
      continue
    text = places.text(name, value, position)
    if text is not None:
      found += 1
      yield text
    elif name in ('TUPLE', 'STOP'):
      break
  if found != expected:
    raise ValueError(f'{found} texts; its header says {expected}.')


def write(path: str | os.PathLike, number: int, texts: Iterable[bytes]) -> None:
  """Write such a file text by text, for np.load(allow_pickle=True).

  Raises:
    ValueError: when there are more or fewer texts.
  """
  written = 0
  with store.open_atomically(path) as f:
    header = {'descr': '|O', 'fortran_order': False, 'shape': (number,)}
    np.lib.format.write_array_header_1_0(f, header)
    f.write(_BEFORE.replace(b'NUMBER', number.to_bytes(4, 'little')))
    for text in texts:
      f.write(b'B' + len(text).to_bytes(4, 'little') + text + b'a')
      written += 1
    f.write(b'tb.')
    if written != number:
      raise ValueError(f'{path}: {written} texts, expected {number}.')


class _Places:
  """Positions in the file of the texts that the pickle repeats."""

  def __init__(self, path: pathlib.Path):
    self._path = path
    self._numbers = array.array('q')
    self._last = -1

  def remember(self, name: str, value, position: int) -> None:
    """Notes the position of a text that an instruction puts into the memo."""
    if name in _BYTES:
      self._last = position
    elif name in plain_pickle.PUT or name == 'MEMOIZE':
      memo = int(value) if name in plain_pickle.PUT else len(self._numbers)
      self._put(memo, self._last)
      self._last = -1
    else:
      self._last = -1

  def text(self, name: str, value, position: int) -> bytes | None:
    """Return the text that an instruction gives, or None."""
    self.remember(name, value, position)
    if name in _BYTES:
      return value
    if name in plain_pickle.GET:
      return self._again(int(value))
    if name not in (*_AROUND, *plain_pickle.PUT):
      raise ValueError(
        f'{name} at byte {position} of its pickle: expected bytes; refused, '
        'and nothing of it was executed.'
      )
    return None

  def _put(self, memo: int, place: int) -> None:
    if memo > len(self._numbers):
      raise ValueError(f'memo {memo} after {len(self._numbers)}.')
    if memo == len(self._numbers):
      self._numbers.append(place)
    else:
      self._numbers[memo] = place

  def _again(self, memo: int) -> bytes:
    if memo >= len(self._numbers) or self._numbers[memo] < 0:
      raise ValueError('an object among the texts that is not a text.')
    with open(self._path, 'rb') as file:
      file.seek(self._numbers[memo])
      _, value, _ = next(plain_pickle.operations(file))
      return value
