# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Arrays that functions can reach, and their bytes: what a model holds in memory.

Followed are closures, attributes, containers, and the globals that a function names. Not
followed are modules, classes and what other languages hold.
"""

from collections.abc import Iterator
import gc
import os
import pathlib
import sys
import types
from typing import Any

import numpy as np

_LARGE = 1 << 20  # bytes from which on a text or a container counts
_PLAIN = (bytes, bytearray, str, dict, list, set, tuple)


def _is_array(x: Any) -> bool:
  return isinstance(getattr(x, 'nbytes', None), int) and hasattr(x, 'shape')


def _names(code: types.CodeType) -> Iterator[str]:
  yield from code.co_names
  for x in code.co_consts:
    if isinstance(x, types.CodeType):
      yield from _names(x)


def _next(x: Any) -> list[Any]:
  """Return what an object refers to; of JAX's functions what they wrap alone."""
  if f'{getattr(type(x), "__module__", "")}'.startswith('jax'):
    return [getattr(x, '__wrapped__', None)]
  if not isinstance(x, types.FunctionType):
    return [*gc.get_referents(x), getattr(x, '__wrapped__', None)]
  cells = (
    c.cell_contents for c in x.__closure__ or () if c != types.CellType()
  )
  named = (x.__globals__.get(name) for name in _names(x.__code__))
  return [*cells, *named, x.__defaults__, x.__kwdefaults__, x.__dict__]


def reach(*roots: Any) -> tuple[list[Any], int]:
  """Return the arrays that objects reach, and the bytes of large texts and containers."""
  seen: dict[int, Any] = {}
  todo, arrays, others = [*roots], [], 0
  while todo:
    x = todo.pop()
    if id(x) in seen or isinstance(x, (types.ModuleType, type)):
      continue
    seen[id(x)] = x  # alive, so that no other object gets its number
    if _is_array(x):
      arrays.append(x)
      continue
    if isinstance(x, _PLAIN) and sys.getsizeof(x) >= _LARGE:
      others += sys.getsizeof(x)
    todo += _next(x)
  return arrays, others


def integers(arrays: list[Any]) -> list[np.ndarray]:
  """Return the arrays of integers, of any library, flat and as int64."""
  # Torch's tensors may be on another device.
  here = (x.cpu() if hasattr(x, 'cpu') else x for x in arrays)
  return [
    np.asarray(x).ravel().astype(np.int64)
    for x in here
    if 'int' in str(getattr(x, 'dtype', '')) and len(x.shape)
  ]


def size_of(arrays: list[Any]) -> int:
  """Count the bytes of arrays, each buffer once."""
  buffers = {}
  for x in arrays:
    while isinstance(getattr(x, 'base', None), np.ndarray):
      x = x.base
    buffers[id(x)] = int(x.nbytes)
  return sum(buffers.values())


def count(held: Any) -> int:
  """Count the bytes of files below paths and of arrays that objects reach.

  Args:
    held: a path, an object, a list of these, or the number itself.
  """
  if isinstance(held, int):
    return held
  parts = held if isinstance(held, list) else [held]
  paths = [pathlib.Path(x) for x in parts if isinstance(x, (str, os.PathLike))]
  objects = [x for x in parts if not isinstance(x, (str, os.PathLike))]
  files = {f for x in paths for f in (x, *x.rglob('*')) if f.is_file()}
  arrays, others = reach(*objects)
  return sum(f.stat().st_size for f in files) + size_of(arrays) + others
