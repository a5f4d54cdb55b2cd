# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's checkpoints (tensor bundles, format V2) without TensorFlow.

<prefix>.index is a sorted string table: name of a variable -> BundleEntryProto
(type, shape, shard, offset, size, checksum), and the BundleHeaderProto under
the empty name. <prefix>.data-00000-of-00001 and so on hold the values
(tensorflow/core/protobuf/tensor_bundle.proto), which are memory-mapped.
"""

import math
import os
import pathlib
from typing import Any

from google.protobuf import message
import ml_dtypes
import numpy as np

from retrieval.formats import protos, sstable, tfrecord

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


# Of tensorflow/core/protobuf/tensor_bundle.proto; enums are read as int32.
_MESSAGES = protos.make_classes(
  'tf',
  protos.describe('Header', {'num_shards': 'int32 1', 'endianness': 'int32 2'}),
  protos.describe('Dim', {'size': 'int64 1'}),
  protos.describe('Shape', {'dim': 'repeated .tf.Dim 2'}),
  protos.describe(
    'Entry',
    {
      'dtype': 'int32 1',
      'shape': '.tf.Shape 2',
      'shard_id': 'int32 3',
      'offset': 'int64 4',
      'size': 'int64 5',
      'crc32c': 'fixed32 6',
      'slices': 'repeated bytes 7',
    },
  ),
)


def exists(prefix: str | os.PathLike) -> bool:
  """Whether there is a bundle, that is, <prefix>.index."""
  return pathlib.Path(f'{os.fspath(prefix)}.index').is_file()


class Bundle:
  """One opened bundle.

  Attributes:
    entries: variable -> its type, shape and place, sorted by name.
  """

  def __init__(self, prefix: str | os.PathLike):
    """Read the index.

    Args:
      prefix: path of the files, with or without .index.

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
      header = _parse('Header', rows.pop(b''))
      if header.endianness:
        raise ValueError('its values are big-endian; expected little-endian.')
      self._num_shards = header.num_shards or 1
      self.entries = {
        name.decode(): _parse('Entry', value)
        for name, value in rows.items()
        # A name that begins with a zero byte is that of a variable's part.
        if not name.startswith(b'\0')
      }
    except ValueError as e:
      raise ValueError(f'{index}: {e}') from None

  def tensor(self, name: str, *, verify: bool = True) -> np.ndarray:
    """Memory-maps the values of one variable.

    With `verify` it compares the checksum, which reads all values once.

    Raises:
      KeyError: when there is no such variable.
      ValueError: when it is damaged, in parts, or of an unsupported type.
    """
    entry = self.entries[name]
    shape = tuple(dim.size for dim in entry.shape.dim)
    where = f'{self.prefix}: variable {name}'
    if entry.slices:
      raise ValueError(
        f'{where} is stored in parts (a partitioned variable): save it whole.'
      )
    if entry.dtype not in _DTYPES:
      raise ValueError(
        f'{where} is of TensorFlow type {entry.dtype}; expected numbers, one of '
        f'{sorted(_DTYPES)}.'
      )
    dtype = _DTYPES[entry.dtype]
    if min((0, *shape)) or math.prod(shape) * dtype.itemsize != entry.size:
      raise ValueError(
        f'{where}: {entry.size} bytes for {dtype} {list(shape)}.'
      )
    data = self._data(entry, where)
    found = tfrecord.masked_crc32c(memoryview(data)) if verify else entry.crc32c
    if found != entry.crc32c:
      raise ValueError(
        f'{where}: checksum expected 0x{entry.crc32c:08x}, its data give '
        f'0x{found:08x}; the file is damaged.'
      )
    return data.view(dtype).reshape(shape)

  def _data(self, entry: Any, where: str) -> np.ndarray:
    """The bytes of a variable, memory-mapped."""
    file = pathlib.Path(
      f'{self.prefix}.data-{entry.shard_id:05d}-of-{self._num_shards:05d}'
    )
    if not file.is_file():
      raise FileNotFoundError(f'{file}: no such file, but {where} is in it.')
    end, there = entry.offset + entry.size, file.stat().st_size
    if end > there or entry.offset < 0:
      raise ValueError(
        f'{where}: expected to end at byte {end} of {file}, which has {there}; '
        'it is cut.'
      )
    if not entry.size:
      return np.zeros(0, np.uint8)
    return np.memmap(file, np.uint8, 'r', entry.offset, (entry.size,))


def _parse(kind: str, data: bytes) -> Any:
  try:
    return _MESSAGES[f'tf.{kind}'].FromString(data)
  except message.DecodeError as e:
    raise ValueError(f'not a message {kind}: {e}') from None
