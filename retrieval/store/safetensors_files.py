# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files larger than memory: read memory-mapped, written in parts.

The `safetensors` library copies every array into memory. A file is the length of a JSON
header (8 bytes, little-endian), the header (name -> dtype, shape, first and past-last
byte of the data), and the data. NAME.gz is such a file compressed by gzip.
"""

import collections
from collections.abc import Iterator, Mapping
import contextlib
import gzip
import io
import itertools
import json
import math
import os
import pathlib
from typing import Any, NamedTuple
import zlib

import ml_dtypes
import numpy as np

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
)
_GZIP = '.gz'
_GZIP_BITS = 31  # zlib's name of its form
_MAX_RATIO = 1032  # of gzip
_MAX_HEADER = 16 << 20  # bytes; a tensor takes about 100
_MAX_DIMS = 32
_WRITE_BYTES = 64 << 20


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Map the arrays of a file; those of NAME.gz are read into memory.

  Raises:
    ValueError: when it is damaged, cut or of another form, with the name of an array
      that does not fit.
  """
  path = pathlib.Path(path)
  with _opened(path) as f:
    start, places = _header(f, path)
    size = max((x.end for x in places.values()), default=0)
    if path.suffix == _GZIP:
      coded = np.memmap(path, np.uint8, 'r')
      whole = zlib.decompress(coded, _GZIP_BITS, start + size)
      data = np.frombuffer(whole, np.uint8, offset=start)
      if len(data) < size:
        raise ValueError(f'{len(data)} bytes of data of {size}')
    else:
      data = np.zeros(0, np.uint8)
      if size:
        data = np.memmap(path, np.uint8, 'r', start)
    return {
      name: data[x.start : x.end].view(x.dtype).reshape(x.shape)
      for name, x in places.items()
    }


def shapes(path: str | os.PathLike) -> dict[str, tuple[int, ...]]:
  """Return the shape of each array; errors as of `read`, but of the header alone."""
  path = pathlib.Path(path)
  with _opened(path) as f:
    return {name: x.shape for name, x in _header(f, path)[1].items()}


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[io.BufferedIOBase]:
  try:
    with (gzip.open if path.suffix == _GZIP else open)(path, 'rb') as f:
      yield f
  except _DAMAGED as e:
    raise ValueError(f'{path}: damaged ({e}).') from None


def _header(
  f: io.BufferedIOBase, path: pathlib.Path
) -> tuple[int, dict[str, '_Place']]:
  """Return where the data begin, in bytes, and the places of the arrays there."""
  size = path.stat().st_size * (_MAX_RATIO if path.suffix == _GZIP else 1)
  length = int.from_bytes(f.read(8), 'little')
  if size < 8 or length > min(size - 8, _MAX_HEADER):
    raise ValueError(
      f'{size} bytes, a header of {length}; cut or not a safetensors file'
    )
  header = json.loads(f.read(length), object_pairs_hook=_once)
  entries = {k: v for k, v in header.items() if k != _METADATA}
  places = {k: _place(k, v, size - 8 - length) for k, v in entries.items()}
  by_start = sorted(
    (x.start, x.end, k) for k, x in places.items() if x.end > x.start
  )
  for (_, end, one), (start, _, other) in itertools.pairwise(by_start):
    if start < end:
      raise ValueError(f'the bytes of {one} and {other} overlap')
  return 8 + length, places


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Make an object of JSON; ValueError for a name that is given twice."""
  found = dict(pairs)
  if len(found) < len(pairs):
    names = collections.Counter(name for name, _ in pairs)
    raise ValueError(f'{names.most_common(1)[0][0]!r} is given twice')
  return found


class _Place(NamedTuple):
  dtype: np.dtype
  start: int  # byte of the data
  end: int
  shape: tuple[int, ...]


def _place(name: str, entry: dict[str, Any], size: int) -> _Place:
  """Check the entry of an array in a file with `size` bytes of data."""
  if (kind := entry['dtype']) not in [*_DTYPES]:
    raise ValueError(f'{name}: dtype {kind!r}; expected one of {[*_DTYPES]}')
  dtype, shape = _DTYPES[kind], entry['shape']
  start, end = entry['data_offsets']
  whole = all(type(n) is int and n >= 0 for n in (*shape, start, end))
  if (
    not whole
    or len(shape) > _MAX_DIMS
    or math.prod(shape) * dtype.itemsize != end - start
    or end > size
  ):
    raise ValueError(
      f'{name}: bytes {start} to {end} of {size} for {dtype} {shape!s:.99}'
    )
  return _Place(dtype, start, end, tuple(shape))


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
