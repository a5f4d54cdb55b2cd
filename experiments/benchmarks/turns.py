# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sides of a benchmark that take turns, each in a process of its own.

Only one side runs at a time, and all sides see the same machine. A side may run
under another interpreter, so this module imports the standard library alone.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

# side -> its numbers
Sides = dict[str, dict[str, float]]


def status_bytes(name: str, process: int | str = 'self') -> int:
  """Return a line of Linux's status of a process, such as RssAnon, or 0."""
  with contextlib.suppress(OSError):  # no Linux, or no such process
    status = pathlib.Path(f'/proc/{process}/status').read_text()
    for line in status.splitlines():
      if line.startswith(f'{name}:'):
        return int(line.split()[1]) * 1024
  return 0


def peak_bytes() -> int:
  """Return the peak of resident memory, of the step that runs if `serve` runs it."""
  # A program inherits ru_maxrss from its parent, but not VmHWM.
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  return status_bytes('VmHWM') or most


def serve(steps: Mapping[str, Callable[[], Any]]) -> None:
  """Run the steps named on standard input and print their cost, as a side.

  Args:
    steps: name -> function without arguments that waits for its result. A dict
      of numbers as the result is added to the answer; `items` is how many things
      the step processed.
  """
  for line in sys.stdin:
    with contextlib.suppress(OSError):  # elsewhere the peak is the process's
      pathlib.Path('/proc/self/clear_refs').write_text('5')
    held, wall, cpu = (
      status_bytes('VmRSS'),
      time.perf_counter(),
      time.process_time(),
    )
    result = steps[line.strip()]()
    answer = {
      'wall_sec': time.perf_counter() - wall,
      'cpu_sec': time.process_time() - cpu,
      'peak_gib': peak_bytes() / 2**30,
      'more_mib': (peak_bytes() - held) / 2**20,
      **(result if isinstance(result, dict) else {}),
    }
    print(json.dumps(answer), flush=True)


class Side:
  """A process that waits for its turn; a context manager that ends it."""

  def __init__(
    self, command: Sequence[str], env: Mapping[str, str] | None = None
  ):
    """Start the process.

    Args:
      command: a command line whose program ends in `serve`.
      env: variables added to this process's environment.
    """
    self._command = list(command)
    self._process = subprocess.Popen(
      self._command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env=os.environ | (env or {}),
    )

  def __enter__(self) -> 'Side':
    return self

  def __exit__(self, *unused_exception) -> None:
    with contextlib.suppress(BrokenPipeError):  # it has ended
      self._process.stdin.close()
    self._process.wait(timeout=30)

  def measure(self, step: str) -> dict[str, float]:
    """Run a step; return the numbers of `serve`."""
    try:
      self._process.stdin.write(step + '\n')
      self._process.stdin.flush()
      answer = self._process.stdout.readline()
    except BrokenPipeError:
      answer = ''
    if not answer:
      raise ValueError(f'{self._command} stopped; its error is above.')
    return json.loads(answer)


def alternate(
  sides: Mapping[str, Side],
  steps: Mapping[str, Sequence[str]],
  repeats: int,
  warmup: int = 1,
  rounds_first: bool = False,
) -> dict[str, Sides]:
  """Measure each step on its sides in turn.

  Args:
    sides: name -> side.
    steps: name of a step -> names of the sides that have it.
    rounds_first: whether all steps take part in each round, too.

  Returns:
    step -> side -> the median of each number; min_sec; first_sec and more_mib also
    of the untimed rounds; the largest peaks.
  """
  rows = {step: {name: [] for name in names} for step, names in steps.items()}
  order = [(i, step) for i in range(warmup + repeats) for step in steps]
  if not rounds_first:
    order.sort(key=lambda x: list(steps).index(x[1]))
  for _, step in order:
    for name, found in rows[step].items():
      found.append(sides[name].measure(step))
  return {
    step: {name: _summary(x, warmup) for name, x in found.items()}
    for step, found in rows.items()
  }


def _summary(
  rows: Sequence[Mapping[str, float]], warmup: int
) -> dict[str, float]:
  timed = rows[warmup:]
  found = {k: statistics.median(row[k] for row in timed) for k in timed[0]}
  found['min_sec'] = min(row['wall_sec'] for row in timed)
  found['first_sec'] = rows[0]['wall_sec']
  found['peak_gib'] = max(row['peak_gib'] for row in timed)
  found['more_mib'] = max(row['more_mib'] for row in rows)
  return found
