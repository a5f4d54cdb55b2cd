# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Searchers of vectors behind one protocol."""

import os
import pathlib

from retrieval.searchers import base
from retrieval.searchers.base import Searcher as Searcher
from retrieval.searchers.exact import ExactSearcher as ExactSearcher
from retrieval.searchers.scann import (
  MIN_ROWS as SCANN_MIN_ROWS,
  ScannConfig as ScannConfig,
  ScannMemoryError as ScannMemoryError,
  ScannSearcher as ScannSearcher,
  ScannUnavailableError as ScannUnavailableError,
  available as scann_available,
)

__all__ = [
  'SCANN_MIN_ROWS',
  'ExactSearcher',
  'ScannConfig',
  'ScannMemoryError',
  'ScannSearcher',
  'ScannUnavailableError',
  'Searcher',
  'exact_of',
  'load',
  'scann_available',
]

_CLASSES = {'exact': ExactSearcher, 'scann': ScannSearcher}


def load(path: str | os.PathLike) -> Searcher:
  """Load a saved searcher of any kind.

  Raises:
    ValueError: when it is damaged or of an unknown kind.
  """
  path = pathlib.Path(path)
  name = base.read_fields(path)['name']
  if name not in _CLASSES:
    raise ValueError(f'{path}: searcher {name!r}, expected {list(_CLASSES)}.')
  return _CLASSES[name].load(path)


def exact_of(searcher: Searcher, vectors) -> ExactSearcher:
  """Return the searcher if it is exact, or an exact one over its vectors.

  The vectors [n, d] are those of the searcher, which has checked them.
  """
  if isinstance(searcher, ExactSearcher):
    return searcher
  return ExactSearcher(vectors, searcher.metric, check=False)
