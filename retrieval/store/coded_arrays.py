# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Arrays in fewer bytes and without loss: Huffman codes, of changes where it helps.

The 8-bit values of a fine-tuned model lie near those of its start: changes take 3 to 5
bits. Of an array NAME a file has NAME itself, or NAME:like, which is empty, of the same
dtype and of the shape with one more axis, and one of

  NAME:code    [n] uint8. The array's bytes in deflate's codes (RFC 1951), in which only
               runs of one byte are matches.
  NAME:change  [n] uint8. The same of the bytes less, modulo 256, those of the base's
               array of the same path below the first part, such as PART/bert/...
"""

from collections.abc import Mapping
import zlib

import numpy as np

CHANGE, _CODE, _LIKE = 'change', 'code', 'like'
_LEAST_BYTES = 1024  # of an array


def encode(
  arrays: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Return each array in its shortest form; `base` is needed to decode it."""
  found, base = {}, _by_tail(base)
  for name, value in arrays.items():
    forms = {}
    if value.nbytes >= _LEAST_BYTES:
      forms[_CODE] = _deflate(_bytes(value))
      near = base.get(_tail(name), np.zeros(0))
      if (near.dtype, near.shape) == (value.dtype, value.shape):
        forms[CHANGE] = _deflate(_bytes(value) - _bytes(near))
    best = min(forms, key=lambda form: forms[form].nbytes, default='')
    if best and forms[best].nbytes < value.nbytes:
      found[f'{name}:{best}'] = forms[best]
      found[f'{name}:{_LIKE}'] = np.zeros((*value.shape, 0), value.dtype)
    else:
      found[name] = value
  return found


def decode(
  stored: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Return the arrays of `encode`, given an equal base if one is a CHANGE."""
  found, base = {}, _by_tail(base)
  for name, value in stored.items():
    path, _, form = name.rpartition(':')
    if form in (_CODE, CHANGE):
      data = np.frombuffer(zlib.decompress(value), np.uint8)
      if form == CHANGE:
        data = data + _bytes(base[_tail(path)])
      like = stored[f'{path}:{_LIKE}']
      found[path] = data.view(like.dtype).reshape(like.shape[:-1])
    elif form != _LIKE:
      found[name] = value
  return found


def shapes(stored: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
  """Return the shape of each array; none is decoded."""
  found = {}
  for name, value in stored.items():
    path, _, form = name.rpartition(':')
    if form == _LIKE:
      found[path] = value.shape[:-1]
    elif form not in (_CODE, CHANGE):
      found[name] = value.shape
  return found


def _tail(name: str) -> str:
  return name.partition('/')[2]


def _by_tail(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  return {_tail(name): value for name, value in arrays.items()}


def _bytes(value: np.ndarray) -> np.ndarray:
  return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _deflate(data: np.ndarray) -> np.ndarray:
  coder = zlib.compressobj(memLevel=9, strategy=zlib.Z_RLE)
  return np.frombuffer(coder.compress(data) + coder.flush(), np.uint8)
