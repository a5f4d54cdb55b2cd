# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Searchers of vectors behind one protocol."""

import os
import pathlib

from retrieval.searchers import base, ray_shards
from retrieval.searchers.base import Searcher as Searcher
from retrieval.searchers.exact import ExactSearcher as ExactSearcher
from retrieval.searchers.scann import (
  MIN_ROWS as SCANN_MIN_ROWS,
  ScannConfig as ScannConfig,
  ScannSearcher as ScannSearcher,
  ScannUnavailableError as ScannUnavailableError,
  available as scann_available,
)
from retrieval.searchers.sharded import ShardedSearcher as ShardedSearcher
from retrieval.store import ray_cluster

__all__ = [
  'SCANN_MIN_ROWS',
  'ExactSearcher',
  'ScannConfig',
  'ScannSearcher',
  'ScannUnavailableError',
  'Searcher',
  'ShardedSearcher',
  'exact_of',
  'load',
  'scann_available',
]

_CLASSES = {
  'exact': ExactSearcher,
  'scann': ScannSearcher,
  'sharded': ShardedSearcher,
}


def load(
  path: str | os.PathLike,
  *,
  cluster: str | None = None,
  shards_in_memory: int | None = None,
) -> Searcher:
  """Load a saved searcher of any kind.

  Args:
    cluster: address of a Ray cluster whose machines hold the shards, such as
      'auto'; see `ray_shards`. '' searches in this process. None takes what was
      given to `ray_cluster.hold_shards`.
    shards_in_memory: shards that this process holds at a time, 0 for all; None is
      as saved. Actors of a cluster hold all.

  Raises:
    ValueError: when it is damaged or of an unknown kind, or not in shards where a
      cluster is given.
  """
  path = pathlib.Path(path)
  name = base.read_fields(path)['name']
  if name not in _CLASSES:
    raise ValueError(f'{path}: searcher {name!r}, expected {list(_CLASSES)}.')
  if name == 'sharded':
    address = ray_cluster.shards_at() if cluster is None else cluster
    if address:
      return ray_shards.RayShardedSearcher.start(path, address)
    return ShardedSearcher.load(path, shards_in_memory)
  if cluster:
    raise ValueError(
      f'{path}: cluster={cluster!r} was given for a searcher of kind {name}, '
      'expected one in shards; build it with index.shards above 1.'
    )
  return _CLASSES[name].load(path)


def exact_of(searcher: Searcher, vectors) -> ExactSearcher | ShardedSearcher:
  """Return the searcher if it is exact, or an exact one over its vectors.

  The vectors [n, d] are those of the searcher, which has checked them.
  """
  if isinstance(searcher, ExactSearcher):
    return searcher
  resident_bytes = None
  if isinstance(searcher, ShardedSearcher):
    if searcher.is_exact:
      return searcher
    if not searcher.holds_all:
      resident_bytes = 0  # memory stays that of the open shards
  return ExactSearcher(
    vectors, searcher.metric, resident_bytes=resident_bytes, check=False
  )
