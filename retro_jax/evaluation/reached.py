# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Bytes of the arrays and large containers that functions can reach.

Followed are closures, attributes, containers, and the globals that a function names. Not
followed are modules, classes and what other languages hold.
"""

from collections.abc import Iterator
import gc
import pathlib
import sys
import types
from typing import Any

import jax
import numpy as np

_SCORES = 1 << 24  # bytes that a search's scores of a block of rows may take
_LARGE = 1 << 20  # bytes from which on a text or a container counts
_PLAIN = (bytes, bytearray, str, dict, list, set, tuple)


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
  named = [x.__globals__.get(name) for name in _names(x.__code__)]
  return [x.__closure__, *named, x.__defaults__, x.__kwdefaults__, x.__dict__]


def num_bytes(*roots: Any) -> int:
  """Count the bytes that objects reach, each buffer once."""
  seen: dict[int, Any] = {}
  todo, sizes = [*roots], {}
  while todo:
    x = todo.pop()
    if id(x) in seen or isinstance(x, (types.ModuleType, type)):
      continue
    seen[id(x)] = x  # alive, so that no other object gets its number
    if isinstance(getattr(x, 'nbytes', None), int) and hasattr(x, 'shape'):
      while isinstance(getattr(x, 'base', None), np.ndarray):
        x = x.base
      sizes[id(x)] = x.nbytes
      continue
    if isinstance(x, _PLAIN) and sys.getsizeof(x) >= _LARGE:
      sizes[id(x)] = sys.getsizeof(x)
    todo += _next(x)
  return sum(sizes.values())


def search_bytes(searcher: Any) -> int:
  """Bytes that a search holds beside its files: norms, scores, rows on accelerators."""
  of_row = 4 * (1 + searcher.dimension * (jax.default_backend() != 'cpu'))
  return searcher.num_vectors * of_row + _SCORES


def files_bytes(*paths: pathlib.Path) -> int:
  """Count the bytes of files, and of all files below folders."""
  files = {f for x in paths for f in (x, *x.rglob('*')) if f.is_file()}
  return sum(f.stat().st_size for f in files)
