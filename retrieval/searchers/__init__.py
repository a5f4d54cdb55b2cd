# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Searchers of vectors behind one protocol; names load on first use."""

import os
import pathlib
from typing import TYPE_CHECKING

from retrieval import lazy
from retrieval.searchers import base
from retrieval.searchers.base import Searcher as Searcher
from retrieval.store import cluster_settings

if TYPE_CHECKING:
  from retrieval.searchers import exact, sharded

_PLACES = {
  'ExactSearcher': '.exact',
  'SCANN_MIN_ROWS': '.scann:MIN_ROWS',
  'ScannConfig': '.scann',
  'ScannSearcher': '.scann',
  'ScannUnavailableError': '.scann',
  'ShardedSearcher': '.sharded',
  'UsearchSearcher': '.usearch',
  'scann_available': '.scann:available',
  'usearch_available': '.usearch:available',
}
__all__ = ['Searcher', 'exact_of', 'load', *_PLACES]
_KINDS = ('exact', 'scann', 'sharded', 'usearch')
__getattr__, __dir__ = lazy.attach(__name__, _PLACES)


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
      set by `cluster_settings.hold_shards`.
    shards_in_memory: shards that this process holds at a time, 0 for all; None is
      as saved. Actors of a cluster hold all.

  Raises:
    ValueError: when it is damaged or of an unknown kind, or not in shards where a
      cluster is named.
  """
  from retrieval.searchers import ray_shards, sharded

  path = pathlib.Path(path)
  name = base.read_fields(path)['name']
  if name not in _KINDS:
    raise ValueError(f'{path}: searcher {name!r}, expected one of {_KINDS}.')
  if name == 'sharded':
    address = cluster_settings.shards_at() if cluster is None else cluster
    if address:
      return ray_shards.RayShardedSearcher.start(path, address)
    return sharded.ShardedSearcher(path, shards_in_memory)
  if cluster:
    raise ValueError(
      f'{path}: cluster={cluster!r} for a searcher of kind {name}, '
      'expected one in shards; build it with index.shards above 1.'
    )
  return __getattr__(f'{name.capitalize()}Searcher').load(path)


def exact_of(
  searcher: Searcher, vectors
) -> 'exact.ExactSearcher | sharded.ShardedSearcher':
  """Return the searcher if it is exact, or an exact one over its vectors.

  The vectors [n, d] are those of the searcher, which has checked them.
  """
  from retrieval.searchers import exact

  if getattr(searcher, 'is_exact', False):
    return searcher
  # Memory stays that of the open shards.
  resident = None if getattr(searcher, 'holds_all', True) else 0
  return exact.ExactSearcher(
    vectors, searcher.metric, resident_bytes=resident, check=False
  )
