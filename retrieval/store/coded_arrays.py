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

from collections.abc import Iterable, Mapping
import zlib

import numpy as np

_CODE, _CHANGE, _LIKE = ':code', ':change', ':like'
_LEAST_BYTES = 1024  # of an array


def encode(
  arrays: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Return each array in its shortest form; `base` is needed to decode it."""
  found, base = {}, _by_tail(base)
  for name, value in arrays.items():
    forms = {'': value}
    if value.nbytes >= _LEAST_BYTES:
      forms[_CODE] = _deflate(_bytes(value))
      near = base.get(_tail(name), np.zeros(0))
      if (near.dtype, near.shape) == (value.dtype, value.shape):
        forms[_CHANGE] = _deflate(_bytes(value) - _bytes(near))
    best = min(forms, key=lambda form: forms[form].nbytes)
    found[name + best] = forms[best]
    if best:
      found[name + _LIKE] = np.zeros((*value.shape, 0), value.dtype)
  return found


def decode(
  stored: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Return the arrays of `encode`, given an equal base if `needs_base`."""
  found, base = {}, _by_tail(base)
  for name, shape in shapes(stored).items():
    if (like := stored.get(name + _LIKE)) is None:
      found[name] = stored[name]
      continue
    code = stored.get(name + _CODE)
    data = zlib.decompress(stored[name + _CHANGE] if code is None else code)
    value = np.frombuffer(data, np.uint8)
    if code is None:
      value = value + _bytes(base[_tail(name)])
    found[name] = value.view(like.dtype).reshape(shape)
  return found


def needs_base(names: Iterable[str]) -> bool:
  """Whether some of the stored arrays are changes."""
  return any(name.endswith(_CHANGE) for name in names)


def shapes(stored: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
  """Return the shape of each array, in the order of `encode`; none is decoded."""
  found = {}
  for name, value in stored.items():
    if name.endswith(_LIKE):
      found[name.removesuffix(_LIKE)] = value.shape[:-1]
    elif not name.endswith((_CODE, _CHANGE)):
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
