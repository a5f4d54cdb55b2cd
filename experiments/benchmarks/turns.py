# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sides of a benchmark that take turns, each in a process of its own.

Only one side runs at a time, and all sides see the same machine. A side may run
under another interpreter, so this module imports the standard library alone. As a
command it is a side: MODULE:FUNCTION SIDE SIZES.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

Sizes = dict[str, Any]
# Names of steps -> functions without arguments that wait for their result. A dict of
# numbers as the result joins the table; `items` is how many things a step processed.
Steps = Mapping[str, Callable[[], Any]]
Numbers = dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """A benchmark: sides that do the same work, and its settings."""

  build: Callable[[str, Sizes], Steps]  # of one of our sides
  # JSON values that all sides get, beside num_threads and a temporary folder
  sizes: Mapping[str, Any]
  sides: tuple[str, ...]  # the first one is the measure of others
  # side -> module beside this one whose `build` another interpreter runs
  peers: Mapping[str, str] = dataclasses.field(default_factory=dict)
  # (side) -> its environment variables, beside those of all sides
  env: Callable[[str], Mapping[str, str]] = lambda side: {}
  # done once before the sides start; what it returns is added to the sizes
  prepare: Callable[[Sizes], Sizes] = lambda sizes: {}
  repeats: int = 5  # timed rounds
  rounds_first: bool = False  # whether all steps take part in each round
  apart: bool = False  # whether each side has ended before the next one starts


def status_bytes(name: str) -> int:
  """Return a line of Linux's status of this process, such as RssAnon, or 0."""
  with contextlib.suppress(OSError):  # no Linux
    status = pathlib.Path('/proc/self/status').read_text()
    for line in status.splitlines():
      if line.startswith(f'{name}:'):
        return int(line.split()[1]) * 1024
  return 0


def serve(steps: Steps) -> None:
  """Print the steps, run those named on standard input, print their cost."""
  print(json.dumps([*steps]), flush=True)
  for line in sys.stdin:
    with contextlib.suppress(OSError):  # begins a new peak of memory
      pathlib.Path('/proc/self/clear_refs').write_text('5')
    held = status_bytes('VmRSS')
    wall, cpu = time.perf_counter(), time.process_time()
    result = steps[line.strip()]()
    answer = {
      'wall_sec': time.perf_counter() - wall,
      'cpu_sec': time.process_time() - cpu,
      'peak_gib': (peak := status_bytes('VmHWM')) / 2**30,
      'more_mib': (peak - held) / 2**20,
      **(result if isinstance(result, dict) else {}),
    }
    print(json.dumps(answer), flush=True)


def kernels() -> str:
  """Return what this process computes with: versions, instructions, threads."""
  found, loaded = [], sys.modules
  with contextlib.suppress(ImportError):
    import threadpoolctl

    for x in threadpoolctl.threadpool_info():
      words = x['prefix'], x['version'], x.get('architecture')
      found.append(f'{" ".join(filter(None, words))} x{x["num_threads"]}')
  if torch := loaded.get('torch'):
    has = torch.backends.cpu.get_cpu_capability()
    found.append(f'torch {torch.__version__} {has} x{torch.get_num_threads()}')
  if 'llvmlite' in loaded:
    found.append(f'numba for {loaded["llvmlite"].binding.get_host_cpu_name()}')
  for name in ('jaxlib', 'onnxruntime', 'faiss'):
    if name in loaded:
      found.append(f'{name} {loaded[name].__version__}')
  return ', '.join(found)


class Side:
  """A process that serves steps; a call runs one of them."""

  def __init__(self, process: subprocess.Popen):
    self._process = process

  def steps(self) -> list[str]:
    """Return the names of the steps, once they are built."""
    return self._read()

  def __call__(self, step: str) -> Numbers:
    """Run a step; ValueError where the process has stopped."""
    with contextlib.suppress(BrokenPipeError):
      print(step, file=self._process.stdin, flush=True)
    return self._read()

  def _read(self) -> Any:
    answer = self._process.stdout.readline()
    if not answer:
      raise ValueError(f'{self._process.args} stopped; its error is above.')
    return json.loads(answer)


@contextlib.contextmanager
def side(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Side]:
  """Start a command that ends in `serve`.

  Args:
    env: variables added to this process's environment.
  """
  pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
  process = subprocess.Popen(command, text=True, env=os.environ | env, **pipes)
  try:
    yield Side(process)
  finally:
    with contextlib.suppress(BrokenPipeError):  # it has ended
      process.stdin.close()
    process.wait(timeout=30)


def alternate(
  sides: Mapping[str, Side], repeats: int, rounds_first: bool = False
) -> dict[str, dict[str, Numbers]]:
  """Measure each step on the sides that have it in turn, after an untimed round.

  Args:
    rounds_first: whether all steps take part in each round, too.

  Returns:
    step -> side -> the median of each number; min_sec; first_sec and more_mib also
    of the untimed round; the largest peaks.
  """
  rows: dict[str, dict[str, list[Numbers]]] = {}
  for name, one in sides.items():
    for step in one.steps():
      rows.setdefault(step, {})[name] = []
  rounds = range(1 + repeats)
  order = [step for step in rows for _ in rounds]
  for step in [*rows] * len(rounds) if rounds_first else order:
    for name, found in rows[step].items():
      found.append(sides[name](step))
  return {
    step: {name: _summary(x) for name, x in found.items()}
    for step, found in rows.items()
  }


def _summary(rows: Sequence[Numbers]) -> Numbers:
  timed = rows[1:]
  found = {k: statistics.median(row[k] for row in timed) for k in timed[0]}
  found['min_sec'] = min(row['wall_sec'] for row in timed)
  found['first_sec'] = rows[0]['wall_sec']
  found['peak_gib'] = max(row['peak_gib'] for row in timed)
  found['more_mib'] = max(row['more_mib'] for row in rows)
  return found


if __name__ == '__main__':
  made, _, build = sys.argv[1].partition(':')
  of_side = getattr(importlib.import_module(made), build)
  serve(of_side(sys.argv[2], json.loads(sys.argv[3])))
  print(f'{sys.argv[2]} computes with {kernels()}', file=sys.stderr)
