# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files larger than memory: read memory-mapped, written in parts.

The `safetensors` library copies every array into memory; it checks headers here. A file
is the length of a JSON header (8 bytes, little-endian), the header (name -> dtype, shape,
first and past-last byte of the data), and the data.
"""

from collections.abc import Iterator, Mapping
import json
import math
import os
import pathlib
from typing import Any

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
_MAX_HEADER = 16 << 20  # bytes; a tensor takes about 100
_WRITE_BYTES = 64 << 20


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Map the arrays of a file.

  Raises:
    ValueError: when it is damaged, cut or of another form.
  """
  path = pathlib.Path(path)
  try:
    with safetensors.safe_open(path, 'np'):
      start, entries = _header(path)
    data = np.zeros(0, np.uint8)
    if path.stat().st_size > start:
      data = np.memmap(path, np.uint8, 'r', start)
    return {
      name: _array(data[slice(*x['data_offsets'])], x)
      for name, x in entries.items()
    }
  except OSError:
    raise
  except Exception as e:  # of many classes, for a damaged header
    raise ValueError(f'{path}: damaged ({e}).') from None


def _header(path: pathlib.Path) -> tuple[int, dict[str, Any]]:
  """Return where the data begin, in bytes, and the entries of the arrays."""
  with open(path, 'rb') as f:
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
  """Write arrays by name into a file, whole or not at all; they are read in parts."""
  header, end = {_METADATA: {'format': 'pt'}}, 0
  for name, array in arrays.items():
    dtype, shape = np.dtype(array.dtype), [int(n) for n in array.shape]
    start, end = end, end + math.prod(shape) * dtype.itemsize
    place = {'shape': shape, 'data_offsets': [start, end]}
    header[name] = {'dtype': _NAMES[dtype], **place}
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)
  with output_files.writing(path) as f:
    f.write(len(text).to_bytes(8, 'little') + text)
    for array in arrays.values():
      for part in _parts(array):
        f.write(np.ascontiguousarray(part).tobytes())


def _parts(array: sharded_array.Rows) -> Iterator[np.ndarray]:
  if not array.shape or not array.shape[0]:
    yield np.asarray(array)
    return
  row = np.dtype(array.dtype).itemsize * math.prod(array.shape[1:])
  step = max(1, _WRITE_BYTES // max(row, 1))
  for low in range(0, array.shape[0], step):
    yield array[low : low + step]
