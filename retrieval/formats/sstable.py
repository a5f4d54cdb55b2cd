# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sorted string tables in LevelDB's format, as TensorFlow writes them.

A table is blocks of entries, an index block with the blocks' places, and a
footer with the place of the index (github.com/google/leveldb,
doc/table_format.md). Keys share prefixes with the keys before them; every block
ends with its compression and a masked CRC-32C.
"""

from collections.abc import Iterator
import os
import pathlib
import struct

from retrieval.formats import tfrecord

_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER = struct.Struct('<BI')  # compression, checksum
_MAX_VARINT_BYTES = 10


def read(path: str | os.PathLike) -> Iterator[tuple[bytes, bytes]]:
  """Yield keys with their values, in order."""
  path = pathlib.Path(path)
  data = memoryview(path.read_bytes())
  try:
    yield from _read(data)
  except ValueError as e:
    raise ValueError(f'{path}: {e}') from None


def _read(data: memoryview) -> Iterator[tuple[bytes, bytes]]:
  footer = data[-_FOOTER_BYTES:]
  if len(data) < _FOOTER_BYTES or footer[-8:] != _MAGIC.to_bytes(8, 'little'):
    raise ValueError(
      'not a sorted string table: its last 8 bytes are no table magic.'
    )
  _, at = _handle(footer, 0)  # meta blocks; checkpoints have no meta block
  index, _ = _handle(footer, at)
  for _, value in _entries(_block(data, *index)):
    place, _ = _handle(memoryview(value), 0)
    yield from _entries(_block(data, *place))


def _handle(data: memoryview, at: int) -> tuple[tuple[int, int], int]:
  """Read (offset, size) of a block, and where the next byte is."""
  offset, at = read_varint(data, at)
  size, at = read_varint(data, at)
  return (offset, size), at


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
  """Read a number of 7 bits a byte, and where the next byte is."""
  value = 0
  for i, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
    value |= (byte & 127) << 7 * i
    if byte < 128:
      return value, at + i + 1
  raise ValueError(f'the number at byte {at} has no end.')


def _block(data: memoryview, offset: int, size: int) -> memoryview:
  end = offset + size
  if end + _TRAILER.size > len(data):
    raise ValueError(
      f'a block of {size} bytes at byte {offset} exceeds the file of '
      f'{len(data)} bytes; it is damaged or cut.'
    )
  compression, stored = _TRAILER.unpack(data[end : end + _TRAILER.size])
  found = tfrecord.masked_crc32c(data[offset : end + 1])
  if found != stored:
    raise ValueError(
      f'checksum of the block at byte {offset}: expected 0x{found:08x}, the '
      f'file holds 0x{stored:08x}; it is damaged.'
    )
  if compression:
    raise ValueError(
      f'the block at byte {offset} is compressed (kind {compression}); expected '
      'none, as in checkpoints.'
    )
  return data[offset:end]


def _entries(block: memoryview) -> Iterator[tuple[bytes, bytes]]:
  restarts = int.from_bytes(block[-4:], 'little')
  limit = len(block) - 4 * (restarts + 1)
  if limit < 0:
    raise ValueError(f'a block of {len(block)} bytes has {restarts} restarts.')
  key, at = b'', 0
  while at < limit:
    shared, at = read_varint(block, at)
    fresh, at = read_varint(block, at)
    size, at = read_varint(block, at)
    if shared > len(key) or at + fresh + size > limit:
      raise ValueError(f'an entry at byte {at} of its block exceeds it.')
    key = key[:shared] + bytes(block[at : at + fresh])
    at += fresh
    yield key, bytes(block[at : at + size])
    at += size
