# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's weight files (pytorch_model.bin) without PyTorch and without trust.

A file is a zip archive: data.pkl names the tensors and the place of each in a
storage; data/<key> are the storages, uncompressed, which are memory-mapped. The
unpickler looks up a few known names and refuses every other one.
"""

import collections
import functools
import io
import math
import os
import pathlib
import pickle
import struct
from typing import NamedTuple
import zipfile

import ml_dtypes
import numpy as np

_DTYPES = {
  'DoubleStorage': np.dtype('<f8'),
  'FloatStorage': np.dtype('<f4'),
  'HalfStorage': np.dtype('<f2'),
  'BFloat16Storage': np.dtype(ml_dtypes.bfloat16),
  'LongStorage': np.dtype('<i8'),
  'IntStorage': np.dtype('<i4'),
  'ShortStorage': np.dtype('<i2'),
  'CharStorage': np.dtype('i1'),
  'ByteStorage': np.dtype('u1'),
  'BoolStorage': np.dtype('?'),
}
_MAX_PICKLE = 64 << 20  # bytes
_LOCAL_HEADER = struct.Struct('<26xHH')  # lengths of name and extra field
_PIECE = 1 << 24  # bytes checked at once


# A pickle may not change the state of a named tuple.
class _Storage(NamedTuple):
  values: np.ndarray  # [n]


class _Tensor(NamedTuple):
  values: np.ndarray  # of its shape


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Read the tensors of a file of weights, which holds nothing else, by name."""
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'{path}: no such file.')
  try:
    if not zipfile.is_zipfile(path):
      raise ValueError(
        'not a zip archive; expected what torch.save writes since 1.6 (load and '
        'save an older file once with PyTorch, as safetensors).'
      )
    with zipfile.ZipFile(path) as archive:
      return _read(path, archive)
  except ValueError as e:
    raise ValueError(f'{path}: {e}') from None
  except Exception as e:  # zipfile and pickle raise a dozen kinds
    raise ValueError(f'{path}: damaged ({type(e).__name__}: {e}).') from None


def _read(path: pathlib.Path, archive: zipfile.ZipFile) -> dict:
  pickles = [x for x in archive.namelist() if x.endswith('/data.pkl')]
  if len(pickles) != 1:
    raise ValueError(f'the archive has {pickles}; expected one data.pkl.')
  root = pickles[0].removesuffix('data.pkl')
  if f'{root}byteorder' in archive.namelist():
    order = archive.read(f'{root}byteorder').decode('ascii', 'replace')
    if order != 'little':
      raise ValueError(f'byte order {order!r}; expected little.')
  size = archive.getinfo(pickles[0]).file_size
  if size > _MAX_PICKLE:
    raise ValueError(f'{pickles[0]} has {size} bytes; expected {_MAX_PICKLE}.')
  data = archive.read(pickles[0])
  content = _Unpickler(data, path, archive, root).load()
  if isinstance(content, dict) and set(content) == {'state_dict'}:
    content = content['state_dict']
  if not isinstance(content, dict):
    raise ValueError(f'it holds a {type(content).__name__}; expected tensors.')
  other = [
    k
    for k, v in content.items()
    if not isinstance(v, _Tensor) or not isinstance(k, str)
  ]
  if other:
    raise ValueError(f'{other[:5]} are no tensors; expected nothing else.')
  return {name: tensor.values for name, tensor in content.items()}


class _Unpickler(pickle.Unpickler):
  """Builds tensors and plain containers; refuses every other call."""

  def __init__(self, data, path, archive, root):
    super().__init__(io.BytesIO(data))
    self._archive, self._root = archive, root
    # Tensors may share a storage, which is read and checked once.
    self._map = functools.lru_cache(None)(
      functools.partial(_map, path, archive)
    )

  def find_class(self, module, name):
    known = {
      'collections.OrderedDict': collections.OrderedDict,
      'torch._utils._rebuild_tensor_v2': _tensor,
      'torch._utils._rebuild_parameter': lambda tensor, *_: tensor,
      **{f'torch.{kind}': kind for kind in _DTYPES},
    }
    full = f'{module}.{name}'
    if full not in known:
      raise ValueError(
        f'it wants to call {full!r}; expected nothing but {sorted(known)}: '
        'refused, and nothing of it was executed.'
      )
    return known[full]

  def persistent_load(self, description):
    _, kind, key, _, count = description
    dtype = _DTYPES[kind]
    member = self._archive.getinfo(f'{self._root}data/{key}')
    if member.file_size != count * dtype.itemsize:
      raise ValueError(
        f'{member.filename} has {member.file_size} bytes; expected {count} '
        f'values of {dtype}.'
      )
    return _Storage(self._map(member.filename).view(dtype))


def _map(path: pathlib.Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
  """Map a member: [n] uint8."""
  member = archive.getinfo(name)
  if member.compress_type != zipfile.ZIP_STORED:
    raise ValueError(f'{name} is compressed; expected what torch.save writes.')
  if not member.file_size:
    return np.zeros(0, np.uint8)
  with open(path, 'rb') as f:
    f.seek(member.header_offset)
    sizes = _LOCAL_HEADER.unpack(f.read(_LOCAL_HEADER.size))
  offset = member.header_offset + _LOCAL_HEADER.size + sum(sizes)
  with archive.open(name) as f:
    while f.read(_PIECE):  # compares the checksum at the end
      pass
  return np.memmap(path, np.uint8, 'r', offset, (member.file_size,))


def _tensor(storage, offset, size, stride, *_) -> _Tensor:
  """torch._utils._rebuild_tensor_v2: a view of a storage."""
  values = storage.values
  offset, size, stride = int(offset), [*map(int, size)], [*map(int, stride)]
  if 0 in size:
    return _Tensor(np.zeros(size, values.dtype))
  last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
  # Values that a view repeats are counted, too: they would be copied.
  last = max(last, math.prod(size) - 1)
  if min((offset, last, *size, *stride)) < 0 or last >= len(values):
    raise ValueError(
      f'a tensor {size} from value {offset} exceeds its storage of '
      f'{len(values)}.'
    )
  strides = [s * values.itemsize for s in stride]
  view = np.lib.stride_tricks.as_strided(
    values[offset:], size, strides, writeable=False
  )
  return _Tensor(view)
