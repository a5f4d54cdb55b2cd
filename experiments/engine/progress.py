# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress with rate and ETA, and a run's throughput against its machine.

On a terminal progress is a bar; elsewhere it is a log line now and then. The
libraries take `progress: Callable[[int, int], None]`, which `bar` provides.
"""

import collections
from collections.abc import Callable, Iterator
import contextlib
import datetime
import sys
import time

from absl import logging
import jax
import rich.console
import rich.progress

_LOG_EVERY_SEC = 10.0
_NUM_POINTS = 30  # one a second at most

# Dense bfloat16 FLOP/s of one device, from the makers' data sheets; the longest
# matching prefix of device_kind counts.
PEAK_FLOPS_PER_SEC = {
  'NVIDIA B200': 2250e12,
  'NVIDIA H200': 989e12,
  'NVIDIA H100': 989e12,
  'NVIDIA H100 PCIe': 756e12,
  'NVIDIA A100': 312e12,
  'NVIDIA L40S': 362e12,
  'NVIDIA L4': 121e12,
  'NVIDIA A10G': 70e12,
  'Tesla V100': 125e12,
  'Tesla T4': 65e12,
  'TPU v3': 123e12,
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5e': 197e12,
  'TPU v5': 459e12,
  'TPU v6': 918e12,
  'TPU7x': 2307e12,
}

Update = Callable[[int, int], None]


def console() -> rich.console.Console:
  """Return standard output for tables; outside a terminal, 100 columns wide."""
  width = None if sys.stdout.isatty() else 100
  return _Console(width=width, emoji=False)  # ':train:' is no picture


class _Console(rich.console.Console):
  def on_broken_pipe(self) -> None:
    """Let the command tell it; rich would end the process without a word."""
    raise BrokenPipeError('standard output')


@contextlib.contextmanager
def bar(description: str, unit: str = 'items') -> Iterator[Update]:
  """Show progress of one piece of work; yield a function (done, total).

  It may be called at any rate; 0 is a total that is not known yet. The first call's
  `done` counts as done before, so that a resumed job shows its true rate.
  """
  pace = _Pace(unit)
  if jax.distributed.is_initialized() and jax.process_index():
    yield lambda done, total: None
  elif sys.stderr.isatty():
    handler = logging.get_absl_handler().python_handler
    with rich.progress.Progress(
      rich.progress.TextColumn('{task.description}'),
      rich.progress.BarColumn(),
      rich.progress.TextColumn('{task.fields[pace]}', markup=False),
      console=rich.console.Console(stderr=True),
    ) as view:
      before = handler.setStream(sys.stderr)  # rich's: keeps clear of the bar
      task = view.add_task(description, total=None, pace='')

      def update(done: int, total: int) -> None:
        text = pace.text(done, total)
        view.update(task, completed=done, total=total or None, pace=text)

      try:
        yield update
      finally:
        if before is not None:
          handler.setStream(before)
  else:
    yield _logger(description, pace)


class _Pace:
  """Done, rate and time left; the rate is that of the last `_NUM_POINTS` seconds.

  Slower work counts by updates. The first update is the start. The rate counts from
  the second one, which may have waited for a compiler, and is shown from the fourth.
  """

  def __init__(self, unit: str):
    self._unit, self._updates = unit, -1
    self._points: collections.deque = collections.deque(maxlen=_NUM_POINTS)

  def text(self, done: int, total: int) -> str:
    """Record progress and return its text."""
    now = time.monotonic()
    self._updates += 1
    if self._updates and (not self._points or now >= self._points[-1][0] + 1):
      self._points.append((now, done))
    shown = f'{done}/{total} {self._unit}' if total else f'{done} {self._unit}'
    if self._updates < 3 or now == self._points[0][0]:
      return shown
    since, before = self._points[0]
    per_sec = (done - before) / (now - since)
    shown += f', {per_sec:,.0f}/s' if per_sec >= 100 else f', {per_sec:.3g}/s'
    if per_sec <= 0 or done >= total:
      return shown
    left = datetime.timedelta(seconds=int((total - done) / per_sec))
    return f'{shown}, {left} left'


def _logger(description: str, pace: _Pace) -> Update:
  """Make an update that logs at most every ten seconds, and at the end."""
  last = time.monotonic()

  def update(done: int, total: int) -> None:
    nonlocal last
    text, now = pace.text(done, total), time.monotonic()
    if now - last >= _LOG_EVERY_SEC or (total and done >= total):
      last = now
      logging.info('%s: %s', description, text)

  return update


def peak_flops_per_sec(device_kind: str) -> float | None:
  """Return the dense bfloat16 peak of a device, or None if it is unknown."""
  known = [name for name in PEAK_FLOPS_PER_SEC if device_kind.startswith(name)]
  return PEAK_FLOPS_PER_SEC[max(known, key=len)] if known else None


class Throughput:
  """Steps/s and derived rates, without pauses and compilation.

  `data_wait_share` is the share of this time that the loop waited for the next
  batch; 0 if every batch was ready.
  """

  def __init__(self, tokens_per_step: int, flops_per_step: float, devices):
    """Take a task's counts and the devices it runs on."""
    peak = peak_flops_per_sec(devices[0].device_kind)
    self._tokens, self._flops = tokens_per_step, flops_per_step
    self._peak = peak * len(devices) if peak else None
    self._steps, self._sec, self._waited_sec = 0, 0.0, 0.0
    self._last: float | None = None

  def tick(self) -> None:
    """Count a finished step; the first step (compilation) starts the clock."""
    now = time.perf_counter()
    if self._last is not None:
      self._sec += now - self._last
      self._steps += 1
    self._last = now

  @contextlib.contextmanager
  def waiting(self) -> Iterator[None]:
    """Times the wait for the next batch."""
    start = time.perf_counter()
    yield
    if self._last is not None:
      self._waited_sec += time.perf_counter() - start

  def pause(self) -> None:
    """Exclude the time until the next step ends."""
    self._last = None

  def read(self) -> dict[str, float]:
    """Return the rates since the last call; empty if no step was timed."""
    if not self._steps:
      return {}
    sec = max(self._sec, 1e-9)
    per_sec, waited = self._steps / sec, self._waited_sec / sec
    self._steps, self._sec, self._waited_sec = 0, 0.0, 0.0
    rates = {'steps_per_sec': per_sec, 'data_wait_share': waited}
    if self._tokens:
      rates['tokens_per_sec'] = per_sec * self._tokens
    if self._flops:
      rates['model_flops_per_sec'] = per_sec * self._flops
    if self._flops and self._peak:
      rates['mfu'] = rates['model_flops_per_sec'] / self._peak
    return rates
