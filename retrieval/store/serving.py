# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A worker's side of a job: it calls the stage and serves the shards of its stores.

A stage opens stores, loads models and builds stores by closures over them. None of
that can be sent to another process; the stage's name and arguments can. A worker calls
the stage as the driver does, with `Serving` as executor: it makes the shards that the
driver asks for, and goes on to the stage's next store when the driver does.
"""

from collections.abc import Callable, Iterator, Mapping
import concurrent.futures
import os
import queue
import threading
from typing import Any, NamedTuple, NoReturn

from retrieval.store import manifests

# Calls a function that builds stores with an executor; it can be pickled.
Stage = Callable[[Any], Any]


class _Request(NamedTuple):
  """A shard to make, and where the answer goes."""

  shard: int
  path: str  # of the store
  fields: Mapping[str, Any]  # fingerprint fields of the store
  answer: concurrent.futures.Future


class Serving:
  """The executor of a worker; called with a shard, it makes and writes it."""

  def __init__(self):
    self._inbox: queue.Queue[_Request] = queue.Queue()

  def __call__(
    self, shard: int, path: str | os.PathLike, fields: Mapping[str, Any]
  ) -> int:
    """Make and write a shard of the store at `path`; return its number."""
    answer = concurrent.futures.Future()
    path = os.path.abspath(path)
    self._inbox.put(_Request(shard, path, fields, answer))
    return answer.result()

  def run(self, name: str, set_up: Any, calls: Any) -> Iterator[Any]:
    """Refuse a store that the driver should have published before."""
    del set_up, calls
    raise ValueError(_unpublished(name))

  def write_shards(self, writer, counts, make, progress) -> bool:
    """Make the shards that are asked for, until one of another store is."""
    del counts, progress
    while True:
      request = self._inbox.get()
      if request.path != os.path.abspath(writer.path):
        self._inbox.put(request)
        os.listdir(writer.path.parent)  # what NFS knows of names may be old
        if not writer.path.exists():
          raise ValueError(_unpublished(writer.path))
        return True
      try:
        _check(writer, request.fields)
        writer.write(request.shard, make(request.shard, None))
        request.answer.set_result(request.shard)
      except BaseException as error:  # noqa: BLE001 - the caller raises it
        request.answer.set_exception(error)

  def refuse(self, error: BaseException) -> NoReturn:
    """Answer every request with an error."""
    while True:
      self._inbox.get().answer.set_exception(error)


def _check(writer, fields: Mapping[str, Any]) -> None:
  if writer.fields != fields:
    difference = manifests.difference(fields, writer.fields)
    raise ValueError(
      f'{writer.path}: a worker would make another store ({difference}); its '
      'devices and packages must be those of the driver, and types such as '
      'embedder.dtype must be named.'
    )


def _unpublished(what: Any) -> str:
  return f'{what}: is not published; run the stages in their order.'


def serve(stage: Stage) -> Serving:
  """Call a stage in a thread of its own; return what makes its shards."""
  served = Serving()

  def work():
    try:
      stage(served)
      raise ValueError(f'{stage}: builds no store that a worker is asked for.')
    except BaseException as error:  # noqa: BLE001 - the caller raises it
      served.refuse(error)

  threading.Thread(target=work, daemon=True).start()
  return served
