# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeps the index of a training run up to date (Guu et al. 2020, section 3.3).

config.refresh.schedule says when and by whom:

  sync    training stops every `every` steps until the new index stands. What a
          batch retrieves from depends on its number alone, so runs repeat and
          resume bit for bit.
  async   a builder works on the newest snapshot while training goes on:
          `builder` 'thread' (on devices of its own), 'process' (on cores of its
          own) or 'external' (`experiments.realm.refresh_worker`, on any host that sees
          the workdir, from the run's checkpoints).
  frozen  the first index serves to the end.

`staleness` multiplies `every`: 30 is the ablation of Table 2. A version is
<workdir>/index/<step>-<hash>/, written whole by one rename and picked up between
batches. A builder that dies, falls behind or makes vectors that are not finite is
reported, and training goes on with the last good index.
"""

from collections.abc import Callable
import concurrent.futures
import dataclasses
import multiprocessing
import threading
import time
from typing import Any

from absl import logging
import numpy as np

from experiments.realm import background_builders
from realm_jax.serving import index_builder
from realm_jax.serving import serving

SCHEDULES = ('sync', 'async', 'frozen')
BUILDERS = ('thread', 'process', 'external')
_LATE = 3  # times `every`: an older index is reported


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefreshConfig:
  """When the index is rebuilt.

  Attributes:
    schedule: 'sync', 'async' or 'frozen'.
    every: steps from one snapshot of the parameters to the next; of async, at
      least so many.
    staleness: factor on `every`.
    builder: async only: 'thread', 'process' or 'external'.
    num_devices: 'thread' only: local devices that build and do not train; 0
      builds on those that train.
    num_cores: 'process' only: cores of the builder.
    keep: newest versions that stay on disk.
    poll_sec: async: how often a new version is looked for.
    batch_tokens: of the builder's batches; 0 goes by device.
  """

  schedule: str = 'sync'
  every: int = 500
  staleness: int = 1
  builder: str = 'process'
  num_devices: int = 0
  num_cores: int = 1
  keep: int = 2
  poll_sec: float = 1.0
  batch_tokens: int = 0

  def __post_init__(self):
    for name, known in (('schedule', SCHEDULES), ('builder', BUILDERS)):
      if getattr(self, name) not in known:
        raise ValueError(
          f'refresh.{name}={getattr(self, name)!r}: expected one of {known}.'
        )
    for name in ('every', 'staleness', 'keep', 'num_cores'):
      if getattr(self, name) < 1:
        raise ValueError(
          f'refresh.{name}={getattr(self, name)}: expected at least 1.'
        )

  @property
  def period(self) -> int:
    """Steps that one index serves."""
    return self.every * self.staleness

  @property
  def identity(self) -> str:
    """What of this decides the stream of batches."""
    period = '' if self.schedule == 'frozen' else self.period
    return f'{self.schedule} {period}'.strip()


class Closed(RuntimeError):
  """A batch was asked for after the run had ended."""


class Refresher:
  """Serves index versions to the pipeline; a `tasks.IndexRefresher`.

  Attributes:
    config: when the index is rebuilt.
  """

  def __init__(
    self,
    config: RefreshConfig,
    builder: index_builder.Builder,
    start_builder: Callable[[], multiprocessing.Process] | None = None,
    measure: Callable[[serving.ServingIndex], dict[str, float]] | None = None,
    first: Callable[[], Any] | None = None,
  ):
    """Nothing is built yet.

    Args:
      config: when the index is rebuilt.
      builder: makes versions in this process.
      start_builder: starts the process of builder 'process'.
      measure: of every index that begins to serve; its values are metrics until
        the next one does.
      first: gives the embedder that the first version is of, or None: of the
        parameters that training starts with.
    """
    self.config = config
    self._first = first
    self._measure = measure
    self._measured: dict[str, float] = {}
    self._builder = builder
    self._folder = builder.folder
    self._embed_queries = serving.QueryEmbedder(builder.model)
    self._background = _make_background(config, builder, start_builder)
    self._serving: dict[int, serving.ServingIndex] = {}  # by period
    self._changed = threading.Condition()
    # Keeps what runs on other devices out of the mesh that trains.
    self._apart = concurrent.futures.ThreadPoolExecutor(1)
    self._closed = False
    self._last_poll = 0.0
    self._last_snapshot = 0
    self._last_late = 0
    self._failures = 0
    self._waited_sec = 0.0  # for indices, by training
    self._saved: list[str] = []  # versions that the newest checkpoints name

  def start(self, step: int, params: Any, saved: str) -> None:
    """Opens the version that a checkpoint names, or builds one.

    Args:
      step: steps taken already.
      params: of this moment.
      saved: name of a version, or ''.

    Raises:
      FileNotFoundError: when that version is gone.
    """
    if saved and saved not in self._folder.names():
      if self.config.schedule != 'async':
        raise FileNotFoundError(
          f'{self._folder.root}: the checkpoint of step {step} retrieves from '
          f'index version {saved}, which is not there; it cannot be continued '
          'exactly. Use a new --workdir.'
        )
      logging.warning('Index version %s is gone; a newer one serves.', saved)
      saved = self._folder.latest(at_most=step)
    self._last_snapshot = step
    self._saved = [saved] if saved else []
    name = saved or self._build(step, self._first_params(params))
    self._serve(self._period(step), name)
    self._background.start()

  def _first_params(self, params: Any) -> Any:
    given = self._first() if self._first else None
    return params if given is None else given

  def _period(self, batch_index: int) -> int:
    """Which version serves a batch, counted from 0."""
    if self.config.schedule != 'sync':
      return 0
    return batch_index // self.config.period

  def _build(self, step: int, params: Any) -> str:
    taken = index_builder.snapshot(params)
    return self._apart.submit(
      background_builders.build, self._builder, step, taken
    ).result()

  def _serve(self, period: int, name: str) -> None:
    version = self._folder.open(name, self._builder.blocks)
    opened = serving.ServingIndex(version, self._embed_queries)
    with self._changed:
      before = self._serving
      self._serving = {period: opened}
      self._changed.notify_all()
    for old in before.values():
      old.version.close()
    logging.info('Retrieving from index version %s.', name)
    if self._measure:
      found = self._apart.submit(self._measure, opened).result()
      self._measured = found | {'index_step': float(version.step)}
      logging.info('Index of step %d: %s', version.step, found)

  def serving(self, batch_index: int | None) -> serving.ServingIndex:
    """The version for a training batch; waits while it is being built.

    Args:
      batch_index: number of the batch from 0; None asks for the newest.

    Returns:
      The version.

    Raises:
      Closed: when the run has ended.
    """
    with self._changed:
      while not self._closed:
        if batch_index is None or self.config.schedule != 'sync':
          if self._serving:
            return self._serving[max(self._serving)]
        elif (period := self._period(batch_index)) in self._serving:
          return self._serving[period]
        self._changed.wait()
    raise Closed('The index is closed; the run has ended.')

  def after_step(self, step: int, params: Any) -> None:
    """Rebuilds (sync), or hands a snapshot over and looks for news (async)."""
    start = time.monotonic()
    self._after_step(step, params)
    self._waited_sec += time.monotonic() - start

  def _after_step(self, step: int, params: Any) -> None:
    config = self.config
    if config.schedule == 'sync' and step % config.period == 0:
      self._refresh_now(step, params)
    elif config.schedule == 'async':
      if step - self._last_snapshot >= config.period:
        if self._background.offer(step, lambda: index_builder.snapshot(params)):
          self._last_snapshot = step
      self._pick_up(step)

  def _refresh_now(self, step: int, params: Any) -> None:
    period = self._period(step)
    try:
      name = self._build(step, params)
    except ValueError as error:
      self._report(step, error)
      self._serve(period, self.index_version())
      return
    self._serve(period, name)
    self._remove_old()

  def _pick_up(self, step: int) -> None:
    """Serves the newest version, looking for it now and then."""
    now = time.monotonic()
    if now - self._last_poll < self.config.poll_sec:
      return
    self._last_poll = now
    for error in self._background.errors():
      self._report(step, error)
    latest = self._folder.latest(at_most=step)
    if latest > self.index_version():
      try:
        self._serve(0, latest)
      except (OSError, ValueError) as error:
        self._report(step, error)
      else:
        self._remove_old()
    age = step - self.serving(None).step
    late = _LATE * self.config.period
    if age > late and step - self._last_late >= self.config.period:
      self._last_late = step
      logging.warning(
        'The index is %d steps old, refresh.every is %d: the builder falls '
        'behind or is not running.',
        *(age, self.config.period),
      )

  def _remove_old(self) -> None:
    keep = {*self._saved, self.index_version()}
    self._folder.remove_old(keep=keep, newest=self.config.keep)

  def _report(self, step: int, error: Exception) -> None:
    self._failures += 1
    logging.warning(
      'Step %d: no new index (%s); training goes on with version %s.',
      *(step, error, self.index_version()),
    )

  def metrics(self, step: int, batch: Any) -> dict[str, float]:
    """Steps between the batch's index and its training step."""
    age = step - 1 - float(np.mean(batch['index_step']))
    return self._measured | {
      'index_age_steps': age,
      'index_failures': float(self._failures),
      'index_wait_sec': self._waited_sec,
    }

  def index_version(self) -> str:
    """Name of the version that serves."""
    return self.serving(None).version.name

  def version_to_save(self) -> str:
    """The same; it stays on disk until two later checkpoints stand."""
    self._saved = [*self._saved[-1:], self.index_version()]
    return self._saved[-1]

  def close(self) -> None:
    """Stops the builder and wakes whoever waits for an index."""
    with self._changed:
      self._closed = True
      self._changed.notify_all()
    self._background.close()
    self._apart.shutdown()


def _make_background(
  config, builder, start_builder
) -> background_builders.BackgroundBuilder:
  if config.schedule != 'async' or config.builder == 'external':
    return background_builders.ExternalBuilder()
  if config.builder == 'thread':
    return background_builders.ThreadBuilder(builder)
  if start_builder is None:
    raise ValueError("refresh.builder='process' needs a way to start one.")
  return background_builders.ProcessBuilder(builder.folder.root, start_builder)
