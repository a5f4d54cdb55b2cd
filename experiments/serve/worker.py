# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One thread that does what waits: jobs of equal settings together, in turn."""

import collections
from collections.abc import Callable, Hashable, Mapping, Sequence
import concurrent.futures
import dataclasses
import threading
from typing import Any

# (settings, items, take) -> a result for each item; take(i, event) tells of item i
# while it is worked on.
Handler = Callable[
  [Any, Sequence[Any], Callable[[int, Any], None]], Sequence[Any]
]


class Full(Exception):
  """As many jobs wait as may."""


class GivenUp(Exception):
  """Nobody waits for the jobs of a batch any more."""


@dataclasses.dataclass(eq=False)
class Job:
  """The work of one request."""

  kind: str
  settings: Hashable
  item: Any
  size: int  # rows of a batch that it fills
  take: Callable[[Any], None] | None = None  # called with each event
  result: concurrent.futures.Future = dataclasses.field(
    default_factory=concurrent.futures.Future
  )
  given_up: bool = False

  def give_up(self) -> None:
    """Leave the queue, or let the batch end once all its jobs are given up."""
    self.given_up = True
    self.result.cancel()


class Worker:
  """Does jobs one batch after the other, the first that waits first."""

  def __init__(
    self,
    handlers: Mapping[str, Handler],
    *,
    max_waiting: int,
    max_size: int,
    done: Callable[[str, int], None] = lambda kind, jobs: None,
  ):
    """Start the thread.

    Args:
      handlers: by kind of a job.
      max_waiting: jobs that may wait.
      max_size: rows of a batch; a larger job is a batch of its own.
      done: called with kind and number of jobs after each batch.
    """
    self._handlers, self._done = handlers, done
    self._max_waiting, self._max_size = max_waiting, max_size
    self._waiting: collections.deque[Job] = collections.deque()
    self._changed = threading.Condition()
    self._stopped = False
    threading.Thread(target=self._run, name='worker', daemon=True).start()

  def __len__(self) -> int:
    return len(self._waiting)

  def submit(self, job: Job) -> None:
    """Let a job wait; Full where too many do."""
    with self._changed:
      if len(self._waiting) >= self._max_waiting:
        raise Full
      self._waiting.append(job)
      self._changed.notify()

  def stop(self) -> None:
    """End the thread after its batch."""
    with self._changed:
      self._stopped = True
      self._changed.notify()

  def _run(self) -> None:
    while True:
      with self._changed:
        self._changed.wait_for(lambda: self._waiting or self._stopped)
        if self._stopped:
          return
        batch = self._next_batch()
      batch = [x for x in batch if x.result.set_running_or_notify_cancel()]
      if batch:
        self._work(batch)
        self._done(batch[0].kind, len(batch))

  def _next_batch(self) -> list[Job]:
    """Take the first job, and others like it that fit."""
    first = self._waiting.popleft()
    batch, size = [first], first.size
    for job in list(self._waiting):
      same = (job.kind, job.settings) == (first.kind, first.settings)
      if same and size + job.size <= self._max_size:
        self._waiting.remove(job)
        batch.append(job)
        size += job.size
    return batch

  def _work(self, batch: Sequence[Job]) -> None:
    def take(i: int, event: Any) -> None:
      if all(job.given_up for job in batch):
        raise GivenUp
      if batch[i].take and not batch[i].given_up:
        batch[i].take(event)

    kind, settings = batch[0].kind, batch[0].settings
    try:
      found = self._handlers[kind](settings, [x.item for x in batch], take)
    except Exception as error:
      for job in batch:
        if len(batch) > 1 and isinstance(error, ValueError):
          self._work([job])  # one of them is to blame
        else:
          job.result.set_exception(error)
      return
    for job, result in zip(batch, found, strict=True):
      job.result.set_result(result)
