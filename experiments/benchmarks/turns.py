# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sides of a benchmark that take turns, each in a process of its own.

No side runs while another is timed, and all see the same machine. A side's script
may run under another interpreter, so nothing here but the standard library is
imported.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any


def status_bytes(name: str) -> int:
  """A line of Linux's status of this process, such as RssAnon; else 0."""
  status = pathlib.Path('/proc/self/status')
  if status.exists():
    for line in status.read_text().splitlines():
      if line.startswith(f'{name}:'):
        return int(line.split()[1]) * 1024
  return 0


def peak_bytes() -> int:
  """Peak resident memory of this process."""
  # What is exec'd inherits its parent's ru_maxrss, but not this.
  found = status_bytes('VmHWM')
  if found:
    return found
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve(steps: Mapping[str, Callable[[], Any]]) -> None:
  """Answers with what a step took, until the input ends; called by a side.

  Args:
    steps: name -> function without arguments that waits for its result; where
      that is a dict of numbers, they are part of the answer.
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
  """A process that waits for its turn."""

  def __init__(
    self, command: Sequence[str], env: Mapping[str, str] | None = None
  ):
    """Starts it.

    Args:
      command: of a script that ends in `serve`.
      env: added to this process's environment.
    """
    self._command = list(command)
    self._process = subprocess.Popen(
      self._command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env=os.environ | (env or {}),
    )

  def measure(self, step: str) -> dict[str, float]:
    """Does a step: wall_sec, cpu_sec, peak_gib of the process so far, and more."""
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
    """Ends the process."""
    self._process.stdin.close()
    self._process.wait(timeout=30)
