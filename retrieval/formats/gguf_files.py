# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: the settings and tensors of a public model, in one file or in parts.

The library of that name reads them. Tensors are quantized to blocks of few
bits: their values differ slightly from those of the trained model.
"""

from collections.abc import Iterator, Mapping
import os
import pathlib
import re
from typing import Any

import numpy as np

_MAGIC = b'GGUF'
_PART = re.compile(r'(.+)-00001-of-\d{5}')


class GgufFile(Mapping[str, np.ndarray]):
  """The tensors of a file by name, float32, each read on access.

  Dimensions are in numpy's order: a linear layer is [out, in].

  Attributes:
    path: of the file.
    settings: of the model and its tokenizer, by name: numbers, texts, lists.
  """

  def __init__(self, path: str | os.PathLike):
    """Open a file, memory-mapped."""
    self.path = pathlib.Path(path)
    with open(self.path, 'rb') as f:
      start = f.read(len(_MAGIC))
    if start != _MAGIC:
      raise ValueError(f'{path}: begins with {start!r}; expected {_MAGIC!r}.')
    try:
      reader = _open(self.path)
      self.settings: dict[str, Any] = {
        name: field.contents() for name, field in reader.fields.items()
      }
    except Exception as e:  # the library checks little
      raise ValueError(f'{path}: damaged or cut ({e}).') from None
    self._tensors = {tensor.name: tensor for tensor in reader.tensors}
    self._add_parts()

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


def _open(path: pathlib.Path) -> Any:
  """Return the library's reader, which by itself reads on past the end of a file."""
  import gguf

  class Reader(gguf.GGUFReader):
    def _get(self, offset, dtype, count=1, override_order=None):
      end = offset + int(count) * np.dtype(dtype).itemsize
      if end > len(self.data):
        raise ValueError(f'byte {end} of {len(self.data)}')
      return super()._get(offset, dtype, count, override_order)

  return Reader(path)
