# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""block_records.npy: texts of blocks as a pickled array, read one by one.

The Hugging Face port of REALM stores its blocks as an array of Python bytes.
The reader parses the pickle without executing it; its memory grows by eight
bytes a block.
"""

import array
from collections.abc import Iterator
import os
import pickletools
from typing import BinaryIO

import numpy as np

_TEXTS = ('SHORT_BINBYTES', 'BINBYTES', 'BINBYTES8')
_PUTS = ('BINPUT', 'LONG_BINPUT', 'MEMOIZE')
_GETS = ('BINGET', 'LONG_BINGET')
_AROUND = ('MARK', 'APPENDS', 'APPEND', 'FRAME')


def read(path: str | os.PathLike) -> Iterator[bytes]:
  """Yield the text of each block, UTF-8."""
  expected, number = count(path), 0
  with open(path, 'rb') as file, open(path, 'rb') as again:
    _read_count(file)
    try:
      for text in _read_texts(file, again):
        number += 1
        if number > expected:
          raise ValueError(f'more than the {expected} texts of its header')
        yield text
      if number != expected:
        raise ValueError(f'{number} texts; its header says {expected}')
    except (ValueError, MemoryError, OverflowError) as e:
      raise ValueError(f'{path}: {e}.') from None


def count(path: str | os.PathLike) -> int:
  """Return the number of blocks in a file's header."""
  with open(path, 'rb') as file:
    try:
      return _read_count(file)
    except Exception as e:  # numpy reads the header as an expression of Python
      text = ' '.join(f'{type(e).__name__}: {e}'.split())
      raise ValueError(f'{path}: no header of an array ({text}).') from None


def _read_count(file: BinaryIO) -> int:
  """Read the header, up to the start of the pickle."""
  if np.lib.format.read_magic(file) == (1, 0):
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
  else:
    shape, _, dtype = np.lib.format.read_array_header_2_0(file)
  if dtype != np.dtype(object) or len(shape) != 1 or shape[0] < 0:
    raise ValueError(f'an array {dtype} {list(shape)}; expected [n] of bytes.')
  return shape[0]


def _read_texts(file: BinaryIO, again: BinaryIO) -> Iterator[bytes]:
  """Yield the texts in the list of an array's pickle.

  `again` is the same file, from which texts are read that the pickle repeats.
  """
  places = array.array('q')  # of the text that each memo holds; -1: no text
  last, listing = -1, False
  for opcode, value, position in pickletools.genops(file):
    name = opcode.name
    if name in _PUTS:
      if value not in (None, len(places)):
        raise ValueError(f'memo {value} after {len(places)}')
      places.append(last)
      continue
    last = position if name in _TEXTS else -1
    if not listing:
      listing = name == 'EMPTY_LIST'
    elif name in _TEXTS:
      yield value
    elif name in _GETS and value < len(places) and places[value] >= 0:
      again.seek(places[value])
      _, text, _ = next(pickletools.genops(again))
      yield text
    elif name in ('TUPLE', 'STOP'):
      return
    elif name not in _AROUND:
      raise ValueError(
        f'{name} at byte {position} of its pickle: expected bytes; refused, '
        'and nothing of it was executed'
      )
