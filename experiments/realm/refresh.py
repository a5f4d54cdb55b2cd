# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The index refresher of a training run (Guu et al. 2020, section 3.3).

config.refresh.schedule is one of

  sync    training stops every `every` steps until the new index is built. The
          index of a batch depends on the batch's number alone, so runs repeat
          and resume bit for bit.
  async   a worker embeds the newest snapshot while training continues: `builder`
          'process' (a child on cores of the machine's end) or 'external'
          (`experiments.realm.refresh_worker`, on any host that sees the workdir).
  frozen  the first index serves to the end.

A version is the folder <workdir>/index/<step>-<hash>/. If a builder fails, a warning
says so, and training keeps the last good index; but a full disk ends a run with
schedule sync, which the same command then continues.
"""

from collections.abc import Callable
import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import threading
import time
from typing import Annotated, Any, Literal

from absl import logging
import numpy as np

from experiments.engine import failures
from experiments.realm import refresh_worker
from realm_jax.data import folder as realm_data
from realm_jax.trained import embedders, index_builder
from retrieval import settings
from retrieval.index import index_versions

_KEPT = 2  # newest versions that stay on disk
_LATE = 3  # times `every`: an older index is reported


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefreshConfig:
  """Schedule of the index refreshes."""

  schedule: Literal['sync', 'async', 'frozen'] = 'sync'
  # steps between two snapshots of the parameters; for async, the minimum
  every: settings.Steps = 500
  builder: Literal['process', 'external'] = 'process'  # for async only
  # cores of the builder; for 'process' only
  num_cores: Annotated[int, settings.Range(1, 4096)] = 1

  __post_init__ = settings.check

  @property
  def identity(self) -> str:
    """Settings that the stream of batches depends on."""
    every = '' if self.schedule == 'frozen' else self.every
    return f'{self.schedule} {every}'.strip()


class Closed(RuntimeError):
  """Error of a batch request after the end of the run."""


class Refresher:
  """Index versions for the pipeline, refreshed from a run's parameters."""

  def __init__(
    self,
    config: RefreshConfig,
    builder: index_builder.Builder,
    start_child: Callable[[], multiprocessing.Process] | None = None,
    first: Callable[[], Any] | None = None,
  ):
    """Store the settings; `start` builds the first version.

    Args:
      config: schedule of the refreshes.
      start_child: starts the process of builder 'process'.
      first: returns the embedder of the first version; None, or a result of
        None, for the parameters that training starts with.
    """
    self.config = config
    self._first = first
    self._builder = builder
    self._folder = builder.folder
    child = config.schedule == 'async' and config.builder == 'process'
    self._worker = refresh_worker.Worker(
      self._folder.root, start_child if child else None
    )
    # The index that serves, and the period of its batches.
    self._serving: tuple[int, embedders.BlockIndex] | None = None
    self._changed = threading.Condition()
    # Its thread is outside the training mesh, which is set for one thread only.
    self._apart = concurrent.futures.ThreadPoolExecutor(1)
    self._closed = False
    self._last_snapshot = self._last_late = 0  # steps
    self._failures = 0
    self._waited_sec = 0.0  # time that training waited for indices
    self._saved: list[str] = []  # versions in the newest checkpoints
    self._refused = ''  # newest version that could not be opened

  def start(self, step: int, params: Any, saved: str) -> None:
    """Open the version that a checkpoint names, or build the first one.

    Args:
      saved: name of the checkpoint's version, or ''.

    Raises:
      FileNotFoundError: if that version no longer exists, and the run is to
        continue exactly.
    """
    asynchronous = self.config.schedule == 'async'
    refresh_worker.forget_later(self._folder, step, asynchronous)
    if saved and not self._folder.is_whole(saved):
      saved = self._recover(step, saved)
    self._last_snapshot = step
    self._saved = [saved] if saved else []
    if not saved:
      first = self._first() if self._first else None
      saved = self._build(step, params if first is None else first)
    self._serve(self._period(step), saved)
    self._worker.start()

  def _recover(self, step: int, saved: str) -> str:
    """Build a damaged version again from its parameters; return its name.

    Where they are damaged, too, the newest whole version takes its place, or ''.
    """
    try:
      params = index_versions.read_snapshot(
        self._folder.root / saved, self._builder.data.blocks
      )
    except (OSError, ValueError) as error:
      if self.config.schedule != 'async':
        raise FileNotFoundError(
          f'{self._folder.root}: the checkpoint of step {step} retrieves from '
          f'index version {saved}, which does not exist or is damaged; it '
          'cannot be continued exactly. Use a new --workdir.'
        ) from None
      logging.warning(
        'Index version %s is lost (%s); a newer one serves.', saved, error
      )
      names = reversed(self._folder.names())
      return next(filter(self._folder.is_whole, names), '')
    refresh_worker.wait_for_all('recover')
    return self._build(index_versions.step_of(saved), params)

  def _period(self, batch_index: int) -> int:
    """Number of the version that serves a batch; both count from 0."""
    if self.config.schedule != 'sync':
      return 0
    return batch_index // self.config.every

  def _build(self, step: int, params: Any) -> str:
    taken = index_builder.snapshot(params)
    return self._apart.submit(
      refresh_worker.build, self._builder, step, taken
    ).result()

  def _serve(self, period: int, name: str) -> None:
    version = self._folder.open(name, self._builder.data.blocks)
    opened = embedders.BlockIndex(version, self._builder.model)
    with self._changed:
      before, self._serving = self._serving, (period, opened)
      self._changed.notify_all()
    if before:
      before[1].version.close()
    logging.info('Retrieving from index version %s.', name)

  def serving(self, batch_index: int | None) -> embedders.BlockIndex:
    """Return the version for a training batch; wait until it is built.

    Args:
      batch_index: number of the batch from 0; None for the newest version.

    Raises:
      Closed: if the run has ended.
    """
    period = None if batch_index is None else self._period(batch_index)
    with self._changed:
      self._changed.wait_for(
        lambda: (
          self._closed or (self._serving and period in (None, self._serving[0]))
        )
      )
      if self._closed:
        raise Closed('The index is closed; the run has ended.')
      return self._serving[1]

  def after_step(self, step: int, params: Any) -> None:
    """Rebuild the index (sync), or exchange snapshot and version (async)."""
    start, period = time.monotonic(), self.config.every
    if self.config.schedule == 'sync' and step % period == 0:
      self._refresh_now(step, params)
    elif self.config.schedule == 'async':
      if step - self._last_snapshot >= period:
        self._worker.offer(step, index_builder.snapshot(params))
        self._last_snapshot = step
      self._pick_up(step)
    self._waited_sec += time.monotonic() - start

  def _refresh_now(self, step: int, params: Any) -> None:
    try:
      name = self._build(step, params)
    except ValueError as error:
      self._report(step, error)
      name = self.index_version()
    self._serve(self._period(step), name)
    self._remove_old()

  def _pick_up(self, step: int) -> None:
    """Report the worker's errors, and serve its newest version."""
    for error in self._worker.errors():
      self._report(step, error)
    latest = self._folder.latest(at_most=step)
    if latest > max(self.index_version(), self._refused):
      try:
        self._serve(0, latest)
      except (OSError, ValueError) as error:
        self._refused = latest
        self._report(step, error)
      else:
        self._remove_old()
    age, period = step - self.serving(None).step, self.config.every
    if age > _LATE * period and step - self._last_late >= period:
      self._last_late = step
      logging.warning(
        'The index is %d steps old, refresh.every is %d: the builder falls '
        'behind or is not running.',
        age,
        period,
      )

  def _remove_old(self) -> None:
    keep = {*self._saved, self.index_version()}
    self._folder.remove_old(keep=keep, newest=_KEPT)

  def _report(self, step: int, error: Exception) -> None:
    self._failures += 1
    logging.warning(
      'Step %d: no new index (%s); training goes on with version %s.',
      step,
      failures.line_of(error, str(self._folder.root)) or repr(error),
      self.index_version(),
    )

  def metrics(self, step: int, batch: Any) -> dict[str, float]:
    """Return the age of the batch's index in steps, and counts of the run."""
    age = step - 1 - float(np.mean(batch['index_step']))
    return {
      'index_age_steps': age,
      'index_failures': float(self._failures),
      'index_wait_sec': self._waited_sec,
    }

  def index_version(self) -> str:
    """Return the name of the version that serves."""
    return self.serving(None).version.name

  def version_to_save(self) -> str:
    """Return the version's name, and keep it on disk for two checkpoints."""
    self._saved = [*self._saved[-1:], self.index_version()]
    return self._saved[-1]

  def close(self) -> None:
    """Stop the builder and wake the threads that wait for an index."""
    with self._changed:
      self._closed = True
      self._changed.notify_all()
    self._worker.close()
    self._apart.shutdown()


def of_run(
  config: Any,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
  first: Callable[[], Any] | None = None,
) -> Refresher:
  """Return the refresher of a run, whose indices are in its workdir."""
  child = functools.partial(refresh_worker.start_child, config, workdir)
  builder = index_builder.make_builder(config, data, workdir)
  return Refresher(config.refresh, builder, child, first)
