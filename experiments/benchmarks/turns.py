# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sides of a benchmark that take turns, each in one process.

As a command, which the interpreter of a peer may run, it is a side: MODULE SIDE SIZES.
MODULE.SIDES[SIDE](SIZES) gives its steps: names -> functions without arguments. A dict
of numbers that they return joins the table; `items` is how many things were processed.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

Numbers = dict[str, float]
Results = dict[tuple[str, str], Numbers]  # (step, side) -> its numbers


def status_bytes(name: str) -> int:
  """Return a line of Linux's status of this process, such as RssAnon, or 0."""
  with contextlib.suppress(OSError):  # no Linux
    status = pathlib.Path('/proc/self/status').read_text()
    for line in status.splitlines():
      if line.startswith(f'{name}:'):
        return int(line.split()[1]) * 1024
  return 0


def serve(steps: Mapping[str, Callable[[], Any]]) -> None:
  """Print the steps; run each step named on standard input and print its cost."""
  print(json.dumps([*steps]), flush=True)
  for line in sys.stdin:
    with contextlib.suppress(OSError):  # begins a new peak of memory
      pathlib.Path('/proc/self/clear_refs').write_text('5')
    held = status_bytes('VmRSS')
    wall, cpu = time.perf_counter(), time.process_time()
    result = steps[line.strip()]()
    answer = {
      'seconds': time.perf_counter() - wall,
      'CPU s': time.process_time() - cpu,
      'GiB': (peak := status_bytes('VmHWM')) / 2**30,
      '+MiB': (peak - held) / 2**20,
      **(result if isinstance(result, dict) else {}),
    }
    print(json.dumps(answer), flush=True)


def kernels() -> str:
  """Return this process's versions, instruction sets and threads."""
  parts, loaded = [], sys.modules
  with contextlib.suppress(ImportError):
    import threadpoolctl

    for x in threadpoolctl.threadpool_info():
      words = x['prefix'], x['version'], x.get('architecture')
      parts.append(f'{" ".join(filter(None, words))} x{x["num_threads"]}')
  if torch := loaded.get('torch'):
    has = torch.backends.cpu.get_cpu_capability()
    parts.append(f'torch {torch.__version__} {has} x{torch.get_num_threads()}')
  if 'llvmlite' in loaded:
    parts.append(f'numba for {loaded["llvmlite"].binding.get_host_cpu_name()}')
  return ', '.join(parts)


@contextlib.contextmanager
def side(command: list[str], env: Mapping[str, str]) -> Iterator[Callable]:
  """Start a command that ends in `serve`; yield a function that runs a step ('': lists them)."""
  pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
  process = subprocess.Popen(command, text=True, env=os.environ | env, **pipes)

  def run(step: str) -> Any:
    with contextlib.suppress(BrokenPipeError):
      print(step, end='\n' if step else '', file=process.stdin, flush=True)
    if not (answer := process.stdout.readline()):
      raise ValueError(f'{command[:-1]} stopped; its error is above.')
    return json.loads(answer)

  try:
    yield run
  finally:
    with contextlib.suppress(BrokenPipeError):  # it has ended
      process.stdin.close()
    process.wait(timeout=30)


def alternate(sides: Mapping[str, Callable], repeats: int) -> Results:
  """Return medians of each step on its sides in turn, after an untimed round."""
  named = {name: run('') for name, run in sides.items()}
  steps = [*dict.fromkeys(x for parts in named.values() for x in parts)]
  rows: dict[tuple[str, str], list[Numbers]] = {}
  for step in steps * (1 + repeats):
    for name in (x for x in sides if step in named[x]):
      rows.setdefault((step, name), []).append(sides[name](step))
  return {
    key: {k: statistics.median(x[k] for x in parts[1:]) for k in parts[1]}
    | {'+MiB': max(x['+MiB'] for x in parts)}  # of all rounds
    for key, parts in rows.items()
  }


if __name__ == '__main__':
  build = importlib.import_module(sys.argv[1]).SIDES[sys.argv[2]]
  serve(build(json.loads(sys.argv[3])))
  print(f'{sys.argv[2]} computes with {kernels()}', file=sys.stderr)
