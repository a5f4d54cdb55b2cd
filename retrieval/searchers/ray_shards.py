# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of a database in shards that the machines of a Ray cluster hold.

An actor holds each shard, for all workers of a job. The folder of the index and its
vectors must be on a file system that every machine sees under the same path. An actor
that dies is started again, opens its shard and answers what it was asked.
"""

import os
import pathlib
from typing import Any
import weakref

from retrieval.searchers import base, sharded
from retrieval.store import ray_cluster

_RESTARTS = 3  # of an actor
_OPTIONS = {
  'get_if_exists': True,
  'num_cpus': 0,
  'scheduling_strategy': 'SPREAD',
  'max_restarts': _RESTARTS,
  'max_task_retries': _RESTARTS,
}


class _Actors(list):
  """Actors of the shards, None for an empty one; they end with the last reference."""


# Those that this process started. Workers of its job find them by their names, which
# keep nothing alive.
_STARTED: weakref.WeakValueDictionary[str, _Actors] = (
  weakref.WeakValueDictionary()
)


class _Holder:
  """One open shard, in a process of its own."""

  def __init__(self, path: str, number: int):
    searcher = sharded.ShardedSearcher.load(path, shards_in_memory=0)
    self._shard = searcher.open_shard(number)

  def search(self, queries, k, settings) -> sharded.Found:
    """See `sharded.Shard.search`."""
    return self._shard.search(queries, k, **settings)

  def process(self) -> int:
    """Number of the process."""
    return os.getpid()


class RayShardedSearcher(sharded.ShardedSearcher):
  """A `ShardedSearcher` whose shards are held by actors and asked all at once."""

  @classmethod
  def start(
    cls, path: str | os.PathLike, address: str = 'auto'
  ) -> 'RayShardedSearcher':
    """Start an actor for each shard of a saved searcher, unless the job has them.

    Args:
      address: of the cluster, 'auto' for the one that runs here, 'local' for a new
        one on this machine; unused where Ray is connected already.

    Raises:
      ImportError: where Ray is not installed.
      ValueError: when the searcher is damaged, or there is no such cluster.
    """
    path = pathlib.Path(path).resolve()
    found = cls(path, base.read_fields(path))
    ray = ray_cluster.connect(address)
    saved = (path / 'searcher.json').stat()  # another one after a new build
    key = f'{path} {saved.st_ino} {saved.st_mtime_ns}'
    actors = _STARTED.get(key)
    if actors is None:
      holder = ray.remote(_Holder)
      actors = _STARTED[key] = _Actors(
        holder.options(name=f'{key} {number}', **_OPTIONS).remote(
          str(path), number
        )
        if size
        else None
        for number, size in enumerate(found._fields['sizes'])
      )
    found._actors = actors
    return found

  def _answers(self, asks, k, settings):
    ray = ray_cluster.import_ray()
    sent: dict[int, Any] = {}  # the same queries go to the cluster once
    pending = []
    for number, own, queries in asks:
      if id(queries) not in sent:
        sent = {id(queries): ray.put(queries)}
      asked = self._actors[number].search.remote(sent[id(queries)], k, settings)
      pending.append((number, own, queries, asked))
    for number, own, _, answer in pending:
      try:
        yield own, ray.get(answer)
      except ray.exceptions.RayActorError:
        raise ValueError(
          f'{self.path}: the machine that holds shard {number} failed '
          f'{_RESTARTS + 1} times, as for want of memory; more shards need less.'
        ) from None

  def processes(self) -> list[int]:
    """Return the process of each shard's actor."""
    held = [actor for actor in self._actors if actor]
    return ray_cluster.import_ray().get(
      [actor.process.remote() for actor in held]
    )

  def close(self) -> None:
    """Stop the actors."""
    ray = ray_cluster.import_ray()
    for actor in self._actors:
      if actor:
        ray.kill(actor)
    self._actors[:] = [None] * self.num_shards
