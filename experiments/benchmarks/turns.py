# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sides of a benchmark that take turns, each in a process of its own.

Only one side runs at a time, and all sides see the same machine. A side may run
under another interpreter, so this module imports the standard library alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
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


def status_bytes(name: str, process: int | str = 'self') -> int:
  """Return a line of Linux's status of a process, such as RssAnon, or 0."""
  with contextlib.suppress(OSError):  # no Linux, or no such process
    status = pathlib.Path(f'/proc/{process}/status').read_text()
    for line in status.splitlines():
      if line.startswith(f'{name}:'):
        return int(line.split()[1]) * 1024
  return 0


def peak_bytes() -> int:
  """Return the peak resident memory of this process."""
  # A program inherits ru_maxrss from its parent, but not VmHWM.
  found = status_bytes('VmHWM')
  if found:
    return found
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak() -> None:
  """Reset the peak, on Linux; elsewhere the peak is that of the process."""
  with contextlib.suppress(OSError):
    pathlib.Path('/proc/self/clear_refs').write_text('5')


class Timed:
  """A function that is timed.

  Attributes:
    function: may be replaced.
    sec: seconds spent in it.
  """

  def __init__(self, function: Callable):
    self.function, self.sec = function, 0.0

  def __call__(self, *arguments) -> Any:
    """Call the function."""
    start = time.perf_counter()
    result = self.function(*arguments)
    self.sec += time.perf_counter() - start
    return result


def serve(steps: Mapping[str, Callable[[], Any]]) -> None:
  """Run the steps named on standard input and print their cost, as a side.

  Args:
    steps: name -> function without arguments that waits for its result. A dict
      of numbers as the result is added to the answer.
  """
  for line in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    result = steps[line.strip()]()
    answer = {
      'wall_sec': time.perf_counter() - wall,
      'cpu_sec': time.process_time() - cpu,
      'peak_gib': peak_bytes() / 2**30,
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
    self.close()

  def measure(self, step: str) -> dict[str, float]:
    """Run a step; return wall_sec, cpu_sec, peak_gib and the step's numbers."""
    try:
      self._process.stdin.write(step + '\n')
      self._process.stdin.flush()
      answer = self._process.stdout.readline()
    except BrokenPipeError:
      answer = ''
    if not answer:
      raise ValueError(f'{self._command} stopped; its error is above.')
    return json.loads(answer)

  def close(self) -> None:
    """End the process."""
    self._process.stdin.close()
    self._process.wait(timeout=30)


def alternate(
  sides: Mapping[str, Side],
  steps: Mapping[str, Collection[str]],
  repeats: int,
  warmup: int = 1,
) -> dict[str, dict[str, dict[str, float]]]:
  """Measure each step on its sides in turn.

  Args:
    sides: name -> side.
    steps: name of a step -> names of the sides that have it.

  Returns:
    step -> side -> the median of each number, min_sec (of the wall time), and
    the largest peak_gib.
  """
  results = {}
  for step, names in steps.items():
    found = {name: [] for name in names}
    for _ in range(warmup + repeats):
      for name, rows in found.items():
        rows.append(sides[name].measure(step))
    results[step] = {k: _summary(rows[warmup:]) for k, rows in found.items()}
  return results


def _summary(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
  found = {k: statistics.median(row[k] for row in rows) for k in rows[0]}
  found['min_sec'] = min(row['wall_sec'] for row in rows)
  found['peak_gib'] = max(row['peak_gib'] for row in rows)
  return found
