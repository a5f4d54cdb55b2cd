# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The tasks of a job: those still to run, their failures, and the slowest ones."""

from collections.abc import Iterator
import dataclasses
import time

from absl import logging

MOST_FAILURES = 3
_LOG_EVERY_SEC = 10.0


KILLED = ChildProcessError(
  'its process was killed, as happens for want of memory: fewer processes need less'
)


class JobError(RuntimeError):
  """A task failed too often; the message names its input."""


@dataclasses.dataclass
class Task:
  """One task of a job and what became of it."""

  arguments: tuple
  failures: int = 0
  lost_on: list[str] = dataclasses.field(default_factory=list)  # nodes
  error: BaseException | None = None  # the last failure


@dataclasses.dataclass
class Tasks:
  """The tasks of a job: those still to run, and the story of the others."""

  job: str
  calls: Iterator[tuple]
  again: list[Task] = dataclasses.field(default_factory=list)
  num_done: int = 0
  num_retries: int = 0
  slowest: list[tuple[float, str]] = dataclasses.field(default_factory=list)
  ended: bool = False
  _start: float = dataclasses.field(default_factory=time.monotonic)
  _logged: float = dataclasses.field(default_factory=time.monotonic)

  def next(self) -> Task | None:
    """Return the next task to run; failed tasks run again first."""
    if self.again:
      return self.again.pop(0)
    arguments = next(self.calls, None)
    return None if arguments is None else Task(arguments)

  def done(self, task: Task, sec: float, worker: str, num_workers: int) -> None:
    """Count a task that is done, and log the job's rate now and then."""
    self.num_done += 1
    if task.arguments:
      named = f'{task.arguments[0]} ({sec:.1f} s, {worker})'
      self.slowest = sorted([*self.slowest, (sec, named)], reverse=True)[:3]
    now = time.monotonic()
    if now - self._logged > _LOG_EVERY_SEC:
      self._logged = now
      self._log(num_workers, 'so far')

  def interrupted(self, task: Task) -> None:
    """Run a task once more that its machine did not let end."""
    self.again.append(task)

  def failed(self, task: Task, error: BaseException) -> None:
    """Run a task once more, unless that is of no use.

    Raises:
      JobError: after the third failure.
      ValueError: at once, as the same input would be as bad again.
    """
    if isinstance(error, ValueError):
      raise error
    task.failures += 1
    task.error = error
    shard = task.arguments[0] if task.arguments else 0
    text = ' '.join(f'{type(error).__name__}: {error}'.split())[:500]
    if task.failures >= MOST_FAILURES:
      raise JobError(
        f'{self.job}: shard {shard} failed {task.failures} times, last with '
        f'{text}; the shards that are done stay, and the same command continues.'
      ) from error
    self.num_retries += 1
    logging.warning('%s: shard %s runs again after %s', self.job, shard, text)
    self.again.append(task)

  def summary(self, num_workers: int) -> None:
    """Log what the job took and its slowest shards."""
    if self.num_done:
      self._log(num_workers, 'in all')

  def _log(self, num_workers: int, when: str) -> None:
    sec = max(time.monotonic() - self._start, 1e-9)
    logging.info(
      '%s: %d shards %s, %.3g/s, %d workers, %d retries; slowest: %s.',
      self.job,
      self.num_done,
      when,
      self.num_done / sec,
      num_workers,
      self.num_retries,
      ', '.join(named for _, named in self.slowest),
    )
