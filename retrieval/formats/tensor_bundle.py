# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's checkpoints (tensor bundles, format V2) without TensorFlow.

<prefix>.index is a sorted string table: name of a variable -> BundleEntryProto
(type, shape, shard, offset, size, checksum), and the BundleHeaderProto under
the empty name. <prefix>.data-00000-of-00001 and so on hold the values
(tensorflow/core/protobuf/tensor_bundle.proto), which are memory-mapped.
"""

import collections
from collections.abc import Iterator
import math
import os
import pathlib
import struct
from typing import NamedTuple

from google.protobuf import empty_pb2, message, unknown_fields
import ml_dtypes
import numpy as np

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
_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER = struct.Struct('<BI')  # compression, checksum
_MAX_VARINT_BYTES = 10


class _Entry(NamedTuple):
  """BundleEntryProto: type, shape and place of one variable."""

  dtype: int
  shape: tuple[int, ...]
  shard: int
  offset: int
  size: int
  crc32c: int
  in_parts: bool


def exists(prefix: str | os.PathLike) -> bool:
  """Whether there is a bundle, that is, <prefix>.index."""
  return pathlib.Path(f'{os.fspath(prefix)}.index').is_file()


class Bundle:
  """One opened bundle; `entries` are type, shape and place by variable, sorted."""

  def __init__(self, prefix: str | os.PathLike):
    """Read the index; `prefix` is the path of the files, with or without .index."""
    self.prefix = os.fspath(prefix).removesuffix('.index')
    index = pathlib.Path(f'{self.prefix}.index')
    if not index.is_file():
      raise FileNotFoundError(
        f'{index}: no such file; expected the prefix of a TensorFlow checkpoint '
        '(<prefix>.index and <prefix>.data-00000-of-00001).'
      )
    rows = dict(read_table(index))
    if b'' not in rows:
      raise ValueError(f'{index}: no header; not the index of a checkpoint.')
    try:
      header = _fields(rows.pop(b''))
      if _last(header, 2):
        raise ValueError('its values are big-endian; expected little-endian.')
      self._num_shards = _last(header, 1) or 1
      self.entries = {
        name.decode(): _entry(value)
        for name, value in rows.items()
        # A name that begins with a zero byte is that of a variable's part.
        if not name.startswith(b'\0')
      }
    except (ValueError, TypeError, message.DecodeError) as e:
      raise ValueError(f'{index}: {e}') from None

  def tensor(self, name: str) -> np.ndarray:
    """Memory-map the values of a variable, or raise KeyError; compare their checksum."""
    entry = self.entries[name]
    where = f'{self.prefix}: variable {name}'
    dtype = _DTYPES.get(entry.dtype)
    if entry.in_parts or dtype is None:
      raise ValueError(
        f'{where}: of type {entry.dtype}{", in parts" * entry.in_parts}; expected '
        f'a whole variable of one of the types {sorted(_DTYPES)}.'
      )
    file = pathlib.Path(
      f'{self.prefix}.data-{entry.shard:05d}-of-{self._num_shards:05d}'
    )
    size = file.stat().st_size
    expected = math.prod(entry.shape) * dtype.itemsize
    if entry.size != expected or entry.offset + expected > size:
      raise ValueError(
        f'{where}: {entry.size} bytes from byte {entry.offset} of {file}, which '
        f'has {size}; expected {expected}; the file is cut.'
      )
    data = np.zeros(0, np.uint8)
    if expected:
      data = np.memmap(file, np.uint8, 'r', entry.offset, (expected,))
    checksum = tfrecord.masked_crc32c(memoryview(data))
    if checksum != entry.crc32c:
      raise ValueError(
        f'{where}: checksum expected 0x{entry.crc32c:08x}, its data give '
        f'0x{checksum:08x}; the file is damaged.'
      )
    return data.view(dtype).reshape(entry.shape)


def _entry(data: bytes) -> _Entry:
  fields = _fields(data)
  dims = _fields(_last(fields, 2, b''))[2]
  shape = tuple(_last(_fields(dim), 1) for dim in dims)
  numbers = (_last(fields, number) for number in (3, 4, 5, 6))
  return _Entry(_last(fields, 1), shape, *numbers, bool(fields[7]))


def _last(fields: dict[int, list], number: int, default=0):
  """The value of a field that is not repeated, of the default's type."""
  value = fields[number][-1] if fields[number] else default
  if type(value) is not type(default):
    raise ValueError(f'field {number} is {value!r:.50}.')
  return value


def _fields(data: bytes) -> dict[int, list]:
  """Parse a protocol buffer: number of each field -> numbers or bytes."""
  fields = collections.defaultdict(list)
  parsed = empty_pb2.Empty.FromString(data)
  for field in unknown_fields.UnknownFieldSet(parsed):
    fields[field.field_number].append(field.data)
  return fields


def read_table(path: str | os.PathLike) -> Iterator[tuple[bytes, bytes]]:
  """Yield the keys and values of a sorted string table, in order.

  It is blocks of entries, an index block with the blocks' places, and a footer
  with the place of the index (github.com/google/leveldb, doc/table_format.md);
  checkpoints have no meta block and are not compressed.
  """
  data = memoryview(pathlib.Path(path).read_bytes())
  try:
    footer = data[-_FOOTER_BYTES:]
    if len(data) < _FOOTER_BYTES or footer[-8:] != _MAGIC.to_bytes(8, 'little'):
      raise ValueError('the last 8 bytes are no table magic.')
    at = 0
    for _ in range(2):  # place and size of the meta block
      _, at = _varint(footer, at)
    for _, place in _block_entries(data, footer[at:]):
      yield from _block_entries(data, memoryview(place))
  except ValueError as e:
    raise ValueError(f'{path}: {e}') from None


def _block_entries(
  data: memoryview, place: memoryview
) -> Iterator[tuple[bytes, bytes]]:
  """Yield the entries of a block; `place` begins with its offset and size."""
  offset, at = _varint(place, 0)
  size, _ = _varint(place, at)
  end = offset + size
  block, trailer = data[offset:end], data[end : end + _TRAILER.size]
  if len(trailer) < _TRAILER.size:
    raise ValueError(
      f'{size} bytes at byte {offset} exceed the file; it is cut.'
    )
  compression, stored = _TRAILER.unpack(trailer)
  checksum = tfrecord.masked_crc32c(data[offset : end + 1])
  if checksum != stored or compression:
    raise ValueError(
      f'checksum of the block at byte {offset}: expected 0x{checksum:08x}, the file '
      f'holds 0x{stored:08x} (compression {compression}); it is damaged.'
    )
  restarts = int.from_bytes(block[-4:], 'little')
  limit = len(block) - 4 * (restarts + 1)
  key, at = b'', 0
  while at < limit:
    # Keys share prefixes with the keys before them.
    shared, at = _varint(block, at)
    fresh, at = _varint(block, at)
    size, at = _varint(block, at)
    if at + fresh + size > limit or shared > len(key):
      raise ValueError(f'an entry of the block at byte {offset} is cut.')
    key = key[:shared] + bytes(block[at : at + fresh])
    at += fresh
    yield key, bytes(block[at : at + size])
    at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
  """Read a number of 7 bits a byte, and where the next byte is."""
  value = 0
  for i, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
    value |= (byte & 127) << 7 * i
    if byte < 128:
      return value, at + i + 1
  raise ValueError(f'the number at byte {at} has no end.')
