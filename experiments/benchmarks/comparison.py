# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A benchmark: sides that do the same work, their steps, and the table of both."""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import sys
from typing import Any

from experiments.benchmarks import turns
from experiments.engine import reports

# Number of a side -> column of the table; other numbers follow by name.
_COLUMNS = {
  'wall_sec': 'seconds',
  'cpu_sec': 'CPU s',
  'peak_gib': 'GiB',
  'more_mib': '+MiB',
}
_FOLDER = pathlib.Path(__file__).parent
# glibc's malloc keeps freed memory, as our trainings let it.
KEEP_MEMORY = {
  'MALLOC_ARENA_MAX': '1',
  'MALLOC_MMAP_MAX_': '0',
  'MALLOC_TRIM_THRESHOLD_': '-1',
}
_OURS = """
import json, sys
from experiments.benchmarks import comparison, turns
task = comparison.load(sys.argv[1])
turns.serve(task.build(sys.argv[2], json.loads(sys.argv[3])))
"""
_PEER = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
import turns
worker = importlib.import_module(sys.argv[2])
turns.serve(worker.build(sys.argv[3], json.loads(sys.argv[4])))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """The sides and settings of a benchmark."""

  # side, sizes -> step -> function; `turns.serve` says what it may return
  build: Callable[[str, dict[str, Any]], Mapping[str, Callable]]
  # JSON values that all sides get, beside num_threads and a temporary folder
  sizes: Mapping[str, Any]
  # sizes -> step -> sides that have it; the first side is the measure of others
  steps: Callable[[Mapping[str, Any]], Mapping[str, Sequence[str]]]
  # side -> module beside this one whose `build` another interpreter runs
  peers: Mapping[str, str] = dataclasses.field(default_factory=dict)
  # done once before the sides start; what it returns is added to the sizes
  prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda sizes: {}
  repeats: int = 5  # timed rounds
  warmup: int = 1
  rounds_first: bool = False  # see `turns.alternate`
  apart: bool = False  # whether each side has ended before the next one starts


# Name of a benchmark -> module that has it.
MODULES = {
  'retro': 'retro',
  'decode': 'retro',
  'realm': 'realm',
  'qa': 'qa',
  'embed': 'embed',
  'sparse': 'sparse',
  'search': 'search',
  'released': 'search',
  'shards': 'search',
}


def load(name: str) -> Task:
  """Return a benchmark."""
  module = importlib.import_module(f'experiments.benchmarks.{MODULES[name]}')
  return module.TASKS[name]


def run(
  name: str,
  sizes: Mapping[str, Any],
  folder: str,
  baseline_python: str = '',
  repeats: int = 0,
  baseline_keeps_memory: bool = False,
) -> dict[str, turns.Sides]:
  """Time all sides.

  Args:
    name: one of `MODULES`.
    sizes: values that differ from those of the benchmark.
    folder: for what the sides share.
    baseline_python: interpreter of the peers; '' leaves them out.
    repeats: timed rounds; 0 for the benchmark's number.
    baseline_keeps_memory: whether malloc of the peers keeps freed memory, too.

  Returns:
    step -> side -> numbers.
  """
  task = load(name)
  threads = len(os.sched_getaffinity(0))
  given = {'num_threads': threads, 'folder': folder, **task.sizes, **sizes}
  given |= task.prepare(given)

  def start(side: str) -> turns.Side:
    if side in task.peers:
      code = [baseline_python, '-c', _PEER, str(_FOLDER), task.peers[side]]
      env = KEEP_MEMORY if baseline_keeps_memory else {}
      env = {'HF_HUB_OFFLINE': '1', **env}
      return turns.Side([*code, side, json.dumps(given)], env)
    code = [sys.executable, '-c', _OURS, name]
    return turns.Side([*code, side, json.dumps(given)], KEEP_MEMORY)

  steps = {
    step: [x for x in sides if baseline_python or x not in task.peers]
    for step, sides in task.steps(given).items()
  }
  steps = {step: sides for step, sides in steps.items() if sides}
  names = list(dict.fromkeys(x for sides in steps.values() for x in sides))
  results: dict[str, turns.Sides] = {step: {} for step in steps}
  for group in [[x] for x in names] if task.apart else [names]:
    with contextlib.ExitStack() as stack:
      sides = {x: stack.enter_context(start(x)) for x in group}
      asked = {
        step: [x for x in some if x in group] for step, some in steps.items()
      }
      found = turns.alternate(
        sides,
        {step: some for step, some in asked.items() if some},
        repeats or task.repeats,
        task.warmup,
        task.rounds_first,
      )
    for step, values in found.items():
      results[step] |= values
  return results


def _text(value: float) -> str:
  return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.3g}'


def per_item(values: Mapping[str, float], name: str) -> float:
  """Return a number of a side for each item that its step processed."""
  return values[name] / values.get('items', 1)


def show(results: Mapping[str, turns.Sides], title: str) -> None:
  """Print a line for each step and side, with ratios to the first side."""
  found = [x for sides in results.values() for x in sides.values()]
  hidden = {*_COLUMNS, 'items', 'min_sec', 'first_sec'}
  more = dict.fromkeys(k for x in found for k in x if k not in hidden)
  ratios = {'x': 'wall_sec', 'x CPU': 'cpu_sec'}
  if all(len(sides) == 1 for sides in results.values()):
    ratios = {}
  lines = []
  for step, sides in results.items():
    first = next(iter(sides.values()))
    for side, values in sides.items():
      cells = [
        _text(values[k]) if k in values else '' for k in (*_COLUMNS, *more)
      ]
      cells.append(_text(1 / max(per_item(values, 'wall_sec'), 1e-9)))
      for name in ratios.values():
        least = max(per_item(first, name), 1e-9)
        cells.append(f'{per_item(values, name) / least:.2f}')
      lines.append((f'{step}, {side}', *cells))
  heads = ('step, side', *_COLUMNS.values(), *more, '/s', *ratios)
  reports.print_table(heads, lines, title)
