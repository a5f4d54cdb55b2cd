# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TFRecord files, plain or gzipped, with every checksum checked.

A record is the length of its data (8 bytes, little-endian), a checksum of these
8 bytes (4), the data, and a checksum of the data (4). Checksums are CRC-32C
(RFC 3720, appendix B.4), masked because the data may hold checksums themselves.
"""

from collections.abc import Iterable, Iterator
import contextlib
import functools
import gzip
import io
import os
import pathlib
import struct
import zlib

import numpy as np

from retrieval.store import output_files

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, lowest bit first
_STEP = 4096  # bytes of one table access; the table takes 4 MiB
_MASK_DELTA = 0xA282EAD8
_HEAD = struct.Struct('<QI')
_CHECKSUM = struct.Struct('<I')
MAX_BYTES = 1 << 28  # of one record
_BUFFER_BYTES = 1 << 20
_GZIP = b'\x1f\x8b'


@functools.cache
def _table() -> np.ndarray:
  """Contribution of a byte to the checksum, by its place: [_STEP * 256] uint32.

  A checksum is linear: each byte adds (xor) a share, which depends on its value
  and on the number of bytes after it.
  """
  last = np.arange(256, dtype=np.uint32)
  for _ in range(8):
    last = (last >> 1) ^ np.where(last & 1, np.uint32(_POLYNOMIAL), 0)
  table = np.empty((_STEP, 256), np.uint32)
  table[-1] = last
  for i in range(_STEP - 2, -1, -1):
    table[i] = (table[i + 1] >> 8) ^ last[table[i + 1] & 255]
  return table.reshape(-1)


_ROWS = np.arange(_STEP) * 256


def crc32c(data: bytes | memoryview) -> int:
  """CRC-32C (Castagnoli) of some bytes."""
  state = 0xFFFFFFFF
  for start in range(0, len(data), _STEP):
    places = np.frombuffer(data[start : start + _STEP], np.uint8).astype(int)
    # The state changes the shares of the next four bytes.
    head = min(4, len(places))
    for i in range(head):
      places[i] ^= (state >> 8 * i) & 255
    places += _ROWS[-len(places) :]
    shares = _table().take(places, mode='wrap')  # faster; all are valid
    state = (state >> 8 * head) ^ int(np.bitwise_xor.reduce(shares))
  return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
  """The checksum as TFRecord files hold it."""
  crc = crc32c(data)
  return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


@functools.lru_cache(1 << 16)
def _head(length: int) -> bytes:
  """The 12 bytes before data, cached because lengths repeat."""
  data = length.to_bytes(8, 'little')
  return data + _CHECKSUM.pack(masked_crc32c(data))


def read(path: str | os.PathLike) -> Iterator[bytes]:
  """Yield the data of each record; memory holds one record at a time.

  The first bytes tell gzip, whatever the name. Errors name record and byte; a record
  of more than MAX_BYTES is one.
  """
  path = pathlib.Path(path)
  with open(path, 'rb', buffering=_BUFFER_BYTES) as raw:
    packed = _is_packed(path, raw.peek(_HEAD.size)[: _HEAD.size])
    f = io.BufferedReader(gzip.GzipFile(fileobj=raw), _BUFFER_BYTES)
    f = f if packed else raw
    number, offset = 0, 0
    while True:
      try:
        record = _read_record(f)
      except (ValueError, EOFError, OSError, zlib.error) as e:
        unit = 'unpacked byte' if packed else 'byte'
        raise ValueError(
          f'{path}: record {number} at {unit} {offset}: {e}'
        ) from None
      if record is None:
        return
      yield record
      number += 1
      offset += _HEAD.size + len(record) + _CHECKSUM.size


def _is_packed(path: pathlib.Path, head: bytes) -> bool:
  """Tell gzip from a plain file; the first length of one may look like gzip."""
  if head == _head(int.from_bytes(head[:8], 'little')):
    return False
  if head.startswith(_GZIP):
    return True
  if path.suffix == '.gz':
    raise ValueError(
      f'{path}: record 0 at byte 0: expected gzip or a TFRecord, not '
      f'{head.hex(" ") or "an empty file"}.'
    )
  return False


def _read_record(f: io.BufferedReader) -> bytes | None:
  """Return the next record's data, or None at the end of the file."""
  if not f.peek(1):
    return None
  head = _exactly(f, _HEAD.size, 'length and checksum')
  length, _ = _HEAD.unpack(head)
  if head != _head(length):
    raise ValueError('checksum of the length differs; damaged or no TFRecord.')
  if length > MAX_BYTES:
    raise ValueError(f'{length:,} bytes, expected at most {MAX_BYTES:,}.')
  data = _exactly(f, length, 'data')
  checksum = _exactly(f, _CHECKSUM.size, 'checksum')
  if checksum != _CHECKSUM.pack(masked_crc32c(data)):
    raise ValueError('checksum of the data differs; the file is damaged.')
  return data


def _exactly(f: io.BufferedReader, size: int, what: str) -> bytes:
  data = f.read(size)
  if len(data) < size:
    raise ValueError(
      f'expected {size} bytes of {what}, the file ends after {len(data)}.'
    )
  return data


def write(path: str | os.PathLike, records: Iterable[bytes]) -> None:
  """Write a file, as `output_files.writing` does; gzipped if its name ends in .gz.

  Equal records give equal files.
  """
  path = pathlib.Path(path)
  with output_files.writing(path) as raw:
    file = contextlib.nullcontext(raw)
    if path.suffix == '.gz':
      file = gzip.GzipFile('', 'wb', 6, raw, mtime=0)
    with file as f:
      for data in records:
        checksum = _CHECKSUM.pack(masked_crc32c(data))
        f.write(b''.join((_head(len(data)), data, checksum)))
