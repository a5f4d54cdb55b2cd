# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's weight files (pytorch_model.bin) without PyTorch and without trust.

A file is a zip archive: data.pkl names the tensors and the place of each in a
storage; data/<key> are the storages, uncompressed. `plain_pickle` reads the
pickle without executing it; storages are memory-mapped.
"""

from collections.abc import Callable
import functools
import os
import pathlib
import struct
from typing import Any, NamedTuple
import zipfile
import zlib

import ml_dtypes
import numpy as np

from retrieval.formats import plain_pickle

_DTYPES = {
  'torch DoubleStorage': np.dtype('<f8'),
  'torch FloatStorage': np.dtype('<f4'),
  'torch HalfStorage': np.dtype('<f2'),
  'torch BFloat16Storage': np.dtype(ml_dtypes.bfloat16),
  'torch LongStorage': np.dtype('<i8'),
  'torch IntStorage': np.dtype('<i4'),
  'torch ShortStorage': np.dtype('<i2'),
  'torch CharStorage': np.dtype('i1'),
  'torch ByteStorage': np.dtype('u1'),
  'torch BoolStorage': np.dtype('?'),
}
_LOCAL_HEADER = struct.Struct('<26xHH')  # lengths of name and extra field
_PIECE = 1 << 24  # bytes checked at once
# Errors of reading a damaged archive.
_DAMAGED = (
  OSError,
  EOFError,
  NotImplementedError,
  RuntimeError,
  struct.error,
  zipfile.BadZipFile,
  zlib.error,
)


class _Storage(NamedTuple):
  """One storage: [n] flat values."""

  values: np.ndarray


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Read the tensors of a file of weights.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for a file of another form, a damaged file, or a pickle that
      holds anything but tensors by name.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'{path}: no such file.')
  if not zipfile.is_zipfile(path):
    raise ValueError(
      f'{path}: not a zip archive; expected what torch.save writes since 1.6 '
      '(load and save an older file once with PyTorch, as safetensors).'
    )
  try:
    with zipfile.ZipFile(path) as archive:
      return _read(path, archive)
  except ValueError as e:
    raise ValueError(f'{path}: {e}') from None
  except _DAMAGED as e:
    raise ValueError(f'{path}: a damaged archive ({e}).') from None


def _read(path: pathlib.Path, archive: zipfile.ZipFile) -> dict:
  pickles = [x for x in archive.namelist() if x.endswith('/data.pkl')]
  if len(pickles) != 1:
    raise ValueError(f'expected one data.pkl in the archive, found {pickles}.')
  root = pickles[0].removesuffix('data.pkl')
  if f'{root}byteorder' in archive.namelist():
    order = archive.read(f'{root}byteorder').decode('ascii', 'replace')
    if order != 'little':
      raise ValueError(f'byte order {order!r}; expected little.')
  machine = plain_pickle.Machine(
    {
      'collections OrderedDict': _ordered_dict,
      'torch._utils _rebuild_tensor_v2': _tensor,
      'torch._utils _rebuild_parameter': lambda tensor, *_: tensor,
    },
    _storages(path, archive, root),
  )
  with archive.open(pickles[0]) as file:
    found = machine.run(file)
    while file.read(_PIECE):  # at its end zipfile compares the checksum
      pass
  if isinstance(found, dict) and set(found) == {'state_dict'}:
    found = found['state_dict']
  if not isinstance(found, dict):
    raise ValueError(f'it holds a {type(found).__name__}; expected tensors.')
  other = [k for k, v in found.items() if not isinstance(v, np.ndarray)]
  if other:
    raise ValueError(f'{other[:5]} are no tensors; expected nothing else.')
  return found


def _ordered_dict(items: Any = ()) -> dict:
  return dict(items)


def _storages(
  path: pathlib.Path, archive: zipfile.ZipFile, root: str
) -> Callable[[Any], _Storage]:
  """Return a function from a description to its storage."""
  # Tensors may share a storage, which is read and checked once.
  mapped = functools.lru_cache(None)(functools.partial(_map, path, archive))

  def find(description: Any) -> _Storage:
    kind, storage_type, key, _, count = description
    name = getattr(storage_type, 'name', repr(storage_type))
    if kind != 'storage' or name not in _DTYPES:
      raise ValueError(
        f'a storage of {name!r}; expected one of {sorted(_DTYPES)}.'
      )
    file = f'{root}data/{key}'
    member = archive.getinfo(file)
    dtype = _DTYPES[name]
    if member.file_size != count * dtype.itemsize:
      raise ValueError(
        f'{member.filename} has {member.file_size} bytes; expected {count} '
        f'values of {dtype}.'
      )
    return _Storage(mapped(file).view(dtype))

  return find


def _map(path: pathlib.Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
  """Read a member: [n] uint8, memory-mapped unless it is compressed."""
  member = archive.getinfo(name)
  if member.compress_type != zipfile.ZIP_STORED or not member.file_size:
    return np.frombuffer(archive.read(member), np.uint8)
  with open(path, 'rb') as f:
    f.seek(member.header_offset)
    sizes = _LOCAL_HEADER.unpack(f.read(_LOCAL_HEADER.size))
  offset = member.header_offset + _LOCAL_HEADER.size + sum(sizes)
  data = np.memmap(path, np.uint8, 'r', offset, (member.file_size,))
  found = 0
  for start in range(0, len(data), _PIECE):
    found = zlib.crc32(data[start : start + _PIECE], found)
  if found != member.CRC:
    raise ValueError(
      f'{name}: checksum expected 0x{member.CRC:08x}, its data give '
      f'0x{found:08x}; the file is damaged.'
    )
  return data


def _tensor(storage, offset, size, stride, *_) -> np.ndarray:
  """torch._utils._rebuild_tensor_v2: a view of a storage."""
  if not isinstance(storage, _Storage) or len(size) != len(stride):
    raise ValueError('a tensor without a storage.')
  values = storage.values
  last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
  if 0 in size:
    return np.zeros(size, values.dtype)
  if min((offset, last, *size, *stride)) < 0 or last >= len(values):
    raise ValueError(
      f'a tensor {list(size)} from value {offset} exceeds its storage of '
      f'{len(values)}.'
    )
  return np.lib.stride_tricks.as_strided(
    values[offset:],
    size,
    [s * values.itemsize for s in stride],
    writeable=False,
  )
