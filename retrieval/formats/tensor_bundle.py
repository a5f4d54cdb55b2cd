# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's checkpoints (tensor bundles, format V2) without TensorFlow.

<prefix>.index is a sorted string table: name of a variable -> BundleEntryProto
(type, shape, shard, offset, size, checksum), and under the empty name the
BundleHeaderProto. <prefix>.data-00000-of-00001 and so on hold the values
(tensorflow/core/protobuf/tensor_bundle.proto). Values are memory-mapped: of a large
variable only what is read is in memory.
"""

import dataclasses
import os
import pathlib
from typing import Any

import ml_dtypes
import numpy as np

from retrieval.formats import sstable
from retrieval.formats import tf_example
from retrieval.formats import tfrecord

# Of tensorflow/core/framework/types.proto; strings are not read.
_DTYPES = {
  1: np.dtype('<f4'),
  2: np.dtype('<f8'),
  3: np.dtype('<i4'),
  4: np.dtype('u1'),
  5: np.dtype('<i2'),
  6: np.dtype('i1'),
  9: np.dtype('<i8'),
  10: np.dtype('?'),
  14: np.dtype(ml_dtypes.bfloat16),
  17: np.dtype('<u2'),
  19: np.dtype('<f2'),
  22: np.dtype('<u4'),
  23: np.dtype('<u8'),
}


@dataclasses.dataclass(frozen=True)
class Entry:
  """Where one variable lies.

  Attributes:
    dtype: number of its type in TensorFlow.
    shape: of the variable.
    shard: number of its data file.
    offset: of its first byte.
    size: bytes.
    crc: masked CRC-32C of them.
    sliced: whether it is stored in parts.
  """

  dtype: int
  shape: tuple[int, ...]
  shard: int
  offset: int
  size: int
  crc: int
  sliced: bool


def exists(prefix: str | os.PathLike) -> bool:
  """Whether a bundle stands there: <prefix>.index."""
  return pathlib.Path(f'{os.fspath(prefix)}.index').is_file()


class Bundle:
  """One opened bundle.

  Attributes:
    prefix: of its files.
    entries: variable -> where it lies, sorted by name.
  """

  def __init__(self, prefix: str | os.PathLike):
    """Reads the index.

    Args:
      prefix: path of the files without .index; that is taken off.

    Raises:
      FileNotFoundError: when there is no such bundle.
      ValueError: when its index is damaged or of another form.
    """
    self.prefix = os.fspath(prefix).removesuffix('.index')
    index = pathlib.Path(f'{self.prefix}.index')
    if not index.is_file():
      raise FileNotFoundError(
        f'{index}: no such file; expected the prefix of a TensorFlow checkpoint '
        '(<prefix>.index and <prefix>.data-00000-of-00001).'
      )
    rows = dict(sstable.read(index))
    if b'' not in rows:
      raise ValueError(f'{index}: no header; not the index of a checkpoint.')
    try:
      self._num_shards = _header(rows.pop(b''))
      self.entries = {
        name.decode(): _entry(value)
        for name, value in rows.items()
        # Parts of variables stand under names that begin with a zero byte.
        if not name.startswith(b'\0')
      }
    except ValueError as e:
      raise ValueError(f'{index}: {e}') from None

  def tensor(self, name: str, *, verify: bool = True) -> np.ndarray:
    """The values of one variable, memory-mapped.

    Args:
      name: of the variable.
      verify: whether to read it once and compare the checksum.

    Returns:
      A read-only array of the variable's shape.

    Raises:
      KeyError: when there is no such variable.
      ValueError: when it is damaged, in parts, or of a type that is not read.
    """
    entry = self.entries[name]
    where = f'{self.prefix}: variable {name}'
    if entry.sliced:
      raise ValueError(
        f'{where} is stored in parts (a partitioned variable): save it whole.'
      )
    if entry.dtype not in _DTYPES:
      raise ValueError(
        f'{where} is of TensorFlow type {entry.dtype}; expected numbers, one of '
        f'{sorted(_DTYPES)}.'
      )
    dtype = _DTYPES[entry.dtype]
    if int(np.prod(entry.shape)) * dtype.itemsize != entry.size:
      raise ValueError(
        f'{where}: {entry.size} bytes for {dtype} {list(entry.shape)}.'
      )
    data = self._data(entry, where)
    if verify:
      _check_crc(data, entry.crc, where)
    return data.view(dtype).reshape(entry.shape)

  def _data(self, entry: Entry, where: str) -> np.ndarray:
    """The bytes of a variable, memory-mapped."""
    file = pathlib.Path(
      f'{self.prefix}.data-{entry.shard:05d}-of-{self._num_shards:05d}'
    )
    if not file.is_file():
      raise FileNotFoundError(f'{file}: no such file, but {where} is in it.')
    end, there = entry.offset + entry.size, file.stat().st_size
    if end > there:
      raise ValueError(
        f'{where}: expected to end at byte {end} of {file}, which has {there}; '
        'it is cut.'
      )
    if not entry.size:
      return np.zeros(0, np.uint8)
    return np.memmap(file, np.uint8, 'r', entry.offset, (entry.size,))


def _check_crc(data: np.ndarray, stored: int, where: str) -> None:
  found = tfrecord.masked_crc32c(memoryview(data))
  if found != stored:
    raise ValueError(
      f'{where}: checksum expected 0x{stored:08x}, its data give 0x{found:08x}; '
      'the file is damaged.'
    )


def _numbers(data: Any) -> dict[int, list]:
  """All values of each field of a message."""
  found: dict[int, list] = {}
  for number, _, value in tf_example.fields(memoryview(data)):
    found.setdefault(number, []).append(value)
  return found


def _header(data: bytes) -> int:
  """Number of data files; refuses big-endian ones."""
  fields = _numbers(data)
  if fields.get(2, [0])[-1]:
    raise ValueError('its values are big-endian; expected little-endian.')
  return fields.get(1, [1])[-1]


def _entry(data: bytes) -> Entry:
  fields = _numbers(data)

  def last(number):
    return fields.get(number, [0])[-1]

  shape = ()
  if 2 in fields:
    sizes = (_numbers(x) for x in _numbers(last(2)).get(2, []))
    shape = tuple(size.get(1, [0])[-1] for size in sizes)
  crc = int.from_bytes(last(6), 'little') if 6 in fields else 0
  return Entry(last(1), shape, last(3), last(4), last(5), crc, 7 in fields)
