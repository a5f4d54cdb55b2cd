# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: the settings and tensors of a public model, in one file.

The library of that name reads them. Tensors are quantized to blocks of few
bits: their values differ slightly from those of the trained model.
"""

from collections.abc import Iterator, Mapping
import os
import pathlib
from typing import Any

import numpy as np

_MAGIC = b'GGUF'


class GgufFile(Mapping[str, np.ndarray]):
  """The tensors of a file by name, float32, each read on access.

  Dimensions are in numpy's order: a linear layer is [out, in].

  Attributes:
    path: of the file.
    settings: of the model and its tokenizer, by name: numbers, texts, lists.
  """

  def __init__(self, path: str | os.PathLike):
    """Open a file, memory-mapped."""
    import gguf

    self.path = pathlib.Path(path)
    with open(self.path, 'rb') as f:
      start = f.read(len(_MAGIC))
    if start != _MAGIC:
      raise ValueError(f'{path}: begins with {start!r}; expected {_MAGIC!r}.')
    try:
      reader = gguf.GGUFReader(self.path)
      self.settings: dict[str, Any] = {
        name: field.contents() for name, field in reader.fields.items()
      }
    except Exception as e:  # the library checks no length
      raise ValueError(f'{path}: damaged or cut ({e}).') from None
    self._tensors = {tensor.name: tensor for tensor in reader.tensors}

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
