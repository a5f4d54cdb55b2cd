# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of a database in shards that the machines of a Ray cluster hold.

An actor holds each shard, for all processes of a job. The folder of the index and its
vectors must be on a file system that every machine sees under the same path. An actor
that dies is started again, opens its shard and answers what it was asked.
"""

import functools
import os
import pathlib
import time

from retrieval.searchers import base, sharded
from retrieval.store import ray_cluster

_RESTARTS = 3  # of an actor
# In which a dead node is noticed and its actors start elsewhere
_START_SEC = 120.0
_OPTIONS = {
  'num_cpus': 0,
  'scheduling_strategy': 'SPREAD',
  'max_restarts': _RESTARTS,
  'max_task_retries': _RESTARTS,
  'get_if_exists': True,
}


class _Holder:
  """One open shard, in another process."""

  def __init__(self, path: str, number: int):
    searcher = sharded.ShardedSearcher(path, shards_in_memory=0)
    self._shard = searcher.open_shard(number)

  def search(self, queries, k) -> base.Hits:
    """See `sharded.Shard.search`."""
    return self._shard.search(queries, k)


@functools.cache  # they end with their first handles
def _actors(path: str, num_shards: int, *made: str | int) -> list:
  """Return the actors of an index; another one was made at another time."""
  holder = ray_cluster.import_ray().remote(_Holder)
  name = ' '.join(map(str, (path, *made)))
  return [
    holder.options(name=f'{name} {i}', **_OPTIONS).remote(path, i)
    for i in range(num_shards)
  ]


class RayShardedSearcher(sharded.ShardedSearcher):
  """A `ShardedSearcher` with shards in actors, which search at the same time."""

  holds_all = False  # this process holds none

  @classmethod
  def start(
    cls, path: str | os.PathLike, address: str = 'auto'
  ) -> 'RayShardedSearcher':
    """Start an actor for each shard of a saved searcher, once a job.

    Args:
      address: of the cluster, 'auto' for the one that runs here, 'local' for a new
        one on this machine; unused where Ray is connected already.

    Raises:
      ImportError: where Ray is not installed.
      ValueError: when the searcher is damaged, or there is no such cluster.
    """
    path = pathlib.Path(path).resolve()
    searcher = cls(path)
    job = ray_cluster.connect(address).get_runtime_context().get_job_id()
    saved = (path / 'searcher.json').stat()
    made = str(job), saved.st_ino, saved.st_mtime_ns
    searcher._actors = _actors(str(path), searcher.num_shards, *made)
    return searcher

  def _answers(self, queries, k):
    ray = ray_cluster.import_ray()
    queries = ray.put(queries)  # they go to the cluster once
    asked = [x.search.remote(queries, k) for x in self._actors]
    for number, answer in enumerate(asked):
      deadline = time.monotonic() + _START_SEC
      while True:
        try:
          yield ray.get(answer)
          break
        except ray.exceptions.ActorUnavailableError as error:
          if time.monotonic() > deadline:  # its node has died
            raise self._lost(number, error) from None
          time.sleep(1)
          answer = self._actors[number].search.remote(queries, k)
        except ray.exceptions.RayActorError as error:
          raise self._lost(number, error) from None
        except ray.exceptions.RayTaskError as error:
          raise error.cause from None  # such as a damaged file

  def _lost(self, number: int, error: Exception) -> ValueError:
    _actors.cache_clear()
    text = ' '.join(str(error).split())[-300:]
    return ValueError(
      f'{self.path}: the process of shard {number} could not start or died '
      f'{_RESTARTS + 1} times. It may lack memory (more shards need less) or the '
      f'folder: {text}'
    )
