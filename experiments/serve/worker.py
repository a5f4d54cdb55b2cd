# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One thread that computes: waiting jobs of equal settings together, in turn."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
import concurrent.futures
import dataclasses
from typing import Any

# (settings, items, take) -> a result for each item; take(i, event) tells of item i
# while it is worked on, and take() of nothing. Either ends a batch without others.
Handler = Callable[[Any, Sequence[Any], Callable[..., None]], Sequence[Any]]


class Full(Exception):
  """As many jobs wait as may."""


class GivenUp(Exception):
  """Nobody waits for the jobs of a batch any more."""


@dataclasses.dataclass(eq=False)
class _Job:
  settings: Hashable
  item: Any
  size: int  # rows of a batch that it fills
  take: Callable[[Any], None] | None  # called with each event
  result: asyncio.Future


class Worker:
  """Does jobs one batch after the other, the first that waits first."""

  def __init__(self, handler: Handler, *, max_waiting: int, max_size: int):
    """Start no thread before the first job.

    Args:
      max_waiting: jobs that may wait.
      max_size: rows of a batch; a larger job is a batch by itself.
    """
    self._handler = handler
    self._max_waiting, self._max_size = max_waiting, max_size
    self._waiting: list[_Job] = []
    self._running: asyncio.Task | None = None
    self._thread = concurrent.futures.ThreadPoolExecutor(1, 'worker')

  def __len__(self) -> int:
    return len(self._waiting)

  async def do(
    self,
    settings: Hashable,
    item: Any,
    size: int = 1,
    take: Callable[[Any], None] | None = None,
  ) -> Any:
    """Return the result of a job; Full where too many wait.

    Cancelling it takes the job out of the queue, and ends a batch without others.
    """
    if len(self._waiting) >= self._max_waiting:
      raise Full
    result = asyncio.get_running_loop().create_future()
    job = _Job(settings, item, size, take, result)
    self._waiting.append(job)
    if self._running is None or self._running.done():
      self._running = asyncio.create_task(self._run())
    try:
      return await result
    finally:
      if job in self._waiting:
        self._waiting.remove(job)

  def stop(self) -> None:
    """End the thread after its batch."""
    self._thread.shutdown(wait=False, cancel_futures=True)

  async def _run(self) -> None:
    while self._waiting:
      await self._work(self._next_batch())

  def _next_batch(self) -> list[_Job]:
    """Take the first job, and others like it that fit."""
    first = self._waiting.pop(0)
    batch, size = [first], first.size
    for job in list(self._waiting):
      if job.settings == first.settings and size + job.size <= self._max_size:
        self._waiting.remove(job)
        batch.append(job)
        size += job.size
    return batch

  async def _work(self, batch: Sequence[_Job]) -> None:
    loop = asyncio.get_running_loop()

    def take(i: int = 0, event: Any = None) -> None:  # in the thread
      if all(job.result.done() for job in batch):
        raise GivenUp
      if event is not None and batch[i].take:
        loop.call_soon_threadsafe(batch[i].take, event)

    arguments = batch[0].settings, [x.item for x in batch], take
    try:
      results = await loop.run_in_executor(
        self._thread, self._handler, *arguments
      )
    except Exception as error:
      if len(batch) > 1 and isinstance(error, ValueError):
        for job in batch:  # one of them is to blame
          await self._work([job])
      for job in batch:
        if not job.result.done():
          job.result.set_exception(error)
      return
    for job, result in zip(batch, results, strict=True):
      if not job.result.done():
        job.result.set_result(result)
