# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files larger than memory: read memory-mapped, written in parts.

The `safetensors` library copies every array into memory; it checks headers here. A file
is the length of a JSON header (8 bytes, little-endian), the header (name -> dtype, shape,
first and past-last byte of the data), and the data. NAME.gz is such a file compressed
by gzip.
"""

from collections.abc import Iterator, Mapping
import contextlib
import gzip
import json
import math
import os
import pathlib
from typing import Any
import zlib

import ml_dtypes
import numpy as np
import safetensors

from retrieval.store import output_files, sharded_array

_DTYPES = {
  'F64': np.dtype('<f8'),
  'F32': np.dtype('<f4'),
  'F16': np.dtype('<f2'),
  'BF16': np.dtype(ml_dtypes.bfloat16),
  'I64': np.dtype('<i8'),
  'I32': np.dtype('<i4'),
  'I16': np.dtype('<i2'),
  'I8': np.dtype('i1'),
  'U8': np.dtype('u1'),
  'BOOL': np.dtype('?'),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_METADATA = '__metadata__'
_DAMAGED = (
  ValueError,
  LookupError,
  TypeError,
  AttributeError,
  RecursionError,
  OverflowError,
  EOFError,
  zlib.error,
  gzip.BadGzipFile,
  safetensors.SafetensorError,
)
_GZIP = '.gz'
_GZIP_BITS = 31  # zlib's name of its form
_MAX_HEADER = 16 << 20  # bytes; a tensor takes about 100
_WRITE_BYTES = 64 << 20


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Map the arrays of a file; those of NAME.gz are read into memory.

  Raises:
    ValueError: when it is damaged, cut or of another form.
  """
  path = pathlib.Path(path)
  with _checked(path):
    if path.suffix == _GZIP:
      coded = gzip.decompress(path.read_bytes())
      return {
        name: _array(np.frombuffer(x['data'], np.uint8), x)
        for name, x in safetensors.deserialize(coded)
      }
    with safetensors.safe_open(path, 'np'):
      start, entries = _header(path)
    data = np.zeros(0, np.uint8)
    if path.stat().st_size > start:
      data = np.memmap(path, np.uint8, 'r', start)
    return {
      name: _array(data[slice(*x['data_offsets'])], x)
      for name, x in entries.items()
    }


def shapes(path: str | os.PathLike) -> dict[str, tuple[int, ...]]:
  """Return the shape of each array; only the header is read and checked."""
  path = pathlib.Path(path)
  with _checked(path):
    return {name: tuple(x['shape']) for name, x in _header(path)[1].items()}


@contextlib.contextmanager
def _checked(path: pathlib.Path) -> Iterator[None]:
  try:
    yield
  except _DAMAGED as e:
    raise ValueError(f'{path}: damaged ({e}).') from None


def _header(path: pathlib.Path) -> tuple[int, dict[str, Any]]:
  """Return where the data begin, in bytes, and the entries of the arrays."""
  with (gzip.open if path.suffix == _GZIP else open)(path, 'rb') as f:
    length = int.from_bytes(f.read(8), 'little')
    if length > _MAX_HEADER:
      raise ValueError(f'a header of {length} bytes; not a safetensors file')
    header = json.loads(f.read(length))
  return 8 + length, {k: x for k, x in header.items() if k != _METADATA}


def _array(data: np.ndarray, entry: Mapping[str, Any]) -> np.ndarray:
  if (kind := entry['dtype']) not in [*_DTYPES]:
    raise ValueError(f'dtype {kind!r}; expected one of {[*_DTYPES]}')
  return data.view(_DTYPES[kind]).reshape(entry['shape'])


def write(
  path: str | os.PathLike, arrays: Mapping[str, sharded_array.Rows]
) -> None:
  """Write arrays by name into a file, whole or not at all; they are read in parts.

  A path that ends with .gz is compressed; equal arrays give equal bytes.

  Raises:
    ValueError: for a dtype that such files cannot hold.
  """
  header, end = {_METADATA: {'format': 'pt'}}, 0
  for name, array in arrays.items():
    dtype, shape = np.dtype(array.dtype), [int(n) for n in array.shape]
    if dtype not in _NAMES:
      raise ValueError(f'{name}: {dtype}; expected one of {sorted(_DTYPES)}.')
    start, end = end, end + math.prod(shape) * dtype.itemsize
    place = {'shape': shape, 'data_offsets': [start, end]}
    header[name] = {'dtype': _NAMES[dtype], **place}
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)
  # Weights hold no text that occurs twice: searching for it takes time alone.
  coder = zlib.compressobj(wbits=_GZIP_BITS, memLevel=9, strategy=zlib.Z_RLE)
  is_coded = pathlib.Path(path).suffix == _GZIP
  with output_files.writing(path) as f:
    add = (lambda x: f.write(coder.compress(x))) if is_coded else f.write
    add(len(text).to_bytes(8, 'little') + text)
    for array in arrays.values():
      for part in _parts(array):
        add(np.ascontiguousarray(part).tobytes())
    if is_coded:
      f.write(coder.flush())


def _parts(array: sharded_array.Rows):
  if not array.shape or not array.shape[0]:
    yield np.asarray(array)
    return
  row = np.dtype(array.dtype).itemsize * math.prod(array.shape[1:])
  step = max(1, _WRITE_BYTES // max(row, 1))
  for low in range(0, array.shape[0], step):
    yield array[low : low + step]
