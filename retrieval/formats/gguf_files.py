# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: the settings and tensors of a public model, in one file or in parts.

The library of that name reads them. Tensors are quantized to blocks of few
bits: their values differ slightly from those of the trained model.
"""

from collections.abc import Iterator, Mapping
import itertools
import math
import os
import pathlib
import re
import struct
from typing import Any, BinaryIO

import numpy as np

_MAGIC = b'GGUF'
_STRING, _ARRAY = 8, 9
# Bytes of the values of other types.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_LEAST_SETTING, _LEAST_TENSOR = 13, 24  # bytes
_MAX_DIMS = 8
_PART = re.compile(r'(.+)-00001-of-\d{5}')


class GgufFile(Mapping[str, np.ndarray]):
  """The tensors of a file by name, float32, each read on access.

  Dimensions are in numpy's order: a linear layer is [out, in].

  Attributes:
    path: of the file.
    settings: of the model and its tokenizer, by name: numbers, texts, lists.
  """

  def __init__(self, path: str | os.PathLike):
    """Open a file, memory-mapped.

    Raises:
      FileNotFoundError: when there is no such file.
      ValueError: when it is damaged, cut or of another form.
    """
    import gguf

    self.path = pathlib.Path(path)
    with open(self.path, 'rb') as f:
      start = f.read(len(_MAGIC))
    if start != _MAGIC:
      raise ValueError(f'{path}: begins with {start!r}; expected {_MAGIC!r}.')
    try:
      with open(self.path, 'rb') as f:
        _Header(f, self.path.stat().st_size).check()
      reader = gguf.GGUFReader(self.path)
      self.settings: dict[str, Any] = {
        name: field.contents() for name, field in reader.fields.items()
      }
    except Exception as e:  # the library checks little
      raise ValueError(f'{path}: damaged or cut ({e}).') from None
    self._tensors = {tensor.name: tensor for tensor in reader.tensors}
    self._add_parts()
    ends = sorted(
      (int(x.data_offset), int(x.n_bytes), x.name)
      for x in reader.tensors
      if x.n_bytes
    )
    for (start, size, one), (after, _, other) in itertools.pairwise(ends):
      if start + size > after:
        raise ValueError(f'{path}: the tensors {one} and {other} overlap.')

  def _add_parts(self) -> None:
    """Add the tensors of the other parts to those of the first."""
    count = self.settings.get('split.count', 1)
    if count < 2 or self.settings.get('split.no', 0):
      return
    if not (name := _PART.fullmatch(self.path.stem)):
      raise ValueError(
        f'{self.path}: the first of {count} parts; expected a name such as '
        f'model-00001-of-{count:05}.gguf.'
      )
    for number in range(2, count + 1):
      part = f'{name[1]}-{number:05}-of-{count:05}.gguf'
      other = GgufFile(self.path.with_name(part))
      if twice := {*other} & {*self}:
        raise ValueError(f'{other.path}: {sorted(twice)[:3]} are in two parts.')
      self._tensors |= other._tensors
    if self.settings.get('split.tensors.count', len(self)) != len(self):
      raise ValueError(f'{self.path}: its parts hold {len(self)} tensors.')

  def __getitem__(self, name: str) -> np.ndarray:
    import gguf

    tensor = self._tensors[name]
    try:
      array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError:
      raise ValueError(
        f'{self.path}: tensor {name} of type {tensor.tensor_type.name}, which '
        'cannot be read; expected another quantization.'
      ) from None
    shape = [int(n) for n in reversed(tensor.shape)]
    return np.asarray(array, np.float32).reshape(shape)

  def __iter__(self) -> Iterator[str]:
    return iter(self._tensors)

  def __len__(self) -> int:
    return len(self._tensors)


class _Header:
  """Walks a header before the package `gguf` allocates by its lengths."""

  def __init__(self, file: BinaryIO, size: int):
    self._file, self._size, self._order = file, size, '<'

  def check(self) -> None:
    """Raise ValueError for a length that the file cannot hold."""
    self._skip(len(_MAGIC))
    version = self._number('I')
    if not version & 0xFFFF:  # written by a big-endian machine
      self._order = '>'
    tensors, settings = self._number('Q'), self._number('Q')
    for _ in range(self._count(settings, _LEAST_SETTING)):
      self._skip(self._number('Q'))
      self._value(self._number('I'))
    for _ in range(self._count(tensors, _LEAST_TENSOR)):
      self._skip(self._number('Q'))
      dims = self._number('I')
      if dims > _MAX_DIMS:
        raise ValueError(f'a tensor of {dims} dimensions')
      elements = math.prod(self._number('Q') for _ in range(dims))
      if elements > 8 * self._size:  # no type has less than a bit
        raise ValueError(f'a tensor of {elements} elements')
      self._skip(12)  # type and offset

  def _value(self, kind: int) -> None:
    if kind == _STRING:
      self._skip(self._number('Q'))
    elif kind == _ARRAY:
      kind, count = self._number('I'), self._number('Q')
      if kind in _SIZES:
        self._skip(count * _SIZES[kind])
        return
      for _ in range(self._count(count, 8)):
        self._value(kind)
    elif kind in _SIZES:
      self._skip(_SIZES[kind])
    else:
      raise ValueError(f'a value of type {kind}')

  def _number(self, code: str) -> int:
    form = struct.Struct(self._order + code)
    [number] = form.unpack(self._file.read(form.size))
    return number

  def _count(self, number: int, least: int) -> int:
    """Return a number of items of at least some bytes."""
    if number * least > self._size:
      raise ValueError(f'{number} items in a file of {self._size} bytes')
    return number

  def _skip(self, length: int) -> None:
    if self._file.tell() + length > self._size:
      raise ValueError(f'{length} bytes in a file of {self._size}')
    self._file.seek(length, 1)
