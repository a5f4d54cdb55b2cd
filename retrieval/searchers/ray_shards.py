# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of a database in shards that the machines of a Ray cluster hold.

An actor holds each shard. The driver of a job starts the actors and hands their names
to its workers, which ask the same actors. The folder of the index and its vectors must
be on a file system that every machine sees under the same path. An actor that dies is
started again, opens its shard and answers what it was asked.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import os
import pathlib
import secrets
import time
from typing import Any
import weakref

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
}


class _Actors(list):
  """Actors of the shards, None for an empty one; they end with the last reference."""

  name: str  # a shard's actor has this name and the shard's number


# Actors that this process started, by the index's path and the identity of its file.
_STARTED: weakref.WeakValueDictionary[tuple, _Actors] = (
  weakref.WeakValueDictionary()
)


@dataclasses.dataclass(frozen=True)
class Holders:
  """Who holds the shards of saved searchers."""

  address: str = ''  # of the cluster; '' for this process
  # path -> name of actors that the driver started, in a worker of its job; None
  # where this process may start actors
  names: Mapping[str, str] | None = None

  def for_workers(self) -> 'Holders':
    """Return the same holders for the workers of this process."""
    names = {key[0]: actors.name for key, actors in _STARTED.items()}
    return Holders(self.address, names)

  def load(self, path: pathlib.Path) -> 'RayShardedSearcher | None':
    """Open a searcher whose shards actors hold; None where none shall."""
    name = ''
    if self.names is not None:
      name = self.names.get(str(path.resolve()))
    if not self.address or name is None:
      return None
    return RayShardedSearcher.start(path, self.address, name)


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
  """A `ShardedSearcher` whose shards are held by actors and asked at once."""

  holds_all = False  # this process holds none

  @classmethod
  def start(
    cls, path: str | os.PathLike, address: str = 'auto', name: str = ''
  ) -> 'RayShardedSearcher':
    """Start an actor for each shard of a saved searcher, or find these actors.

    Args:
      address: of the cluster, 'auto' for the one that runs here, 'local' for a new
        one on this machine; unused where Ray is connected already.
      name: of actors that the driver of this job started; '' starts them, unless
        this process did.

    Raises:
      ImportError: where Ray is not installed.
      ValueError: when the searcher is damaged, or there is no such cluster.
    """
    path = pathlib.Path(path).resolve()
    found = cls(path, base.read_fields(path))
    ray = ray_cluster.connect(address)
    sizes = found._fields['sizes']
    if name:
      found._actors = _Actors(
        ray.get_actor(f'{name} {i}') if size else None
        for i, size in enumerate(sizes)
      )
      return found
    job = ray.get_runtime_context().get_job_id()
    saved = (path / 'searcher.json').stat()  # another one after a new build
    key = str(path), job, saved.st_ino, saved.st_mtime_ns
    if (actors := _STARTED.get(key)) is None:
      name, holder = f'shard {secrets.token_hex(8)}', ray.remote(_Holder)
      actors = _Actors(
        holder.options(name=f'{name} {i}', **_OPTIONS).remote(str(path), i)
        if size
        else None
        for i, size in enumerate(sizes)
      )
      actors.name = name
      _STARTED[key] = actors
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
    for number, own, queries, answer in pending:
      again = functools.partial(
        self._actors[number].search.remote, queries, k, settings
      )
      try:
        yield own, _patient(ray, answer, again)
      except ray.exceptions.RayActorError as error:
        _forget(self._actors)
        text = ' '.join(str(error).split())[-300:]
        raise ValueError(
          f'{self.path}: the process of shard {number} could not start or died '
          f'{_RESTARTS + 1} times. It may lack memory (more shards need less) or the '
          f'folder: {text}'
        ) from None

  def processes(self) -> list[int]:
    """Return the process of each shard's actor."""
    held = [actor for actor in self._actors if actor]
    return ray_cluster.import_ray().get(
      [actor.process.remote() for actor in held]
    )

  def close(self) -> None:
    """Stop the actors, also for other searchers of the same index."""
    ray = ray_cluster.import_ray()
    for actor in self._actors:
      if actor:
        ray.kill(actor)
    _forget(self._actors)
    self._actors = _Actors([None] * self.num_shards)


def _patient(ray, answer, again: Callable[[], Any]) -> Any:
  """Return the answer of an actor that may be starting again elsewhere.

  Args:
    again: asks once more.
  """
  deadline = time.monotonic() + _START_SEC
  while True:
    try:
      return ray.get(answer)
    except ray.exceptions.ActorUnavailableError:  # its node has died
      if time.monotonic() > deadline:
        raise
      time.sleep(1)
      answer = again()


def _forget(actors: _Actors) -> None:
  """Let the next searcher start actors of its own."""
  for key, started in [*_STARTED.items()]:
    if started is actors:
      del _STARTED[key]
