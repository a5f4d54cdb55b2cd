# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags, sides, ratios, table and JSON file of benchmarks against a peer."""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import json
import os
import pathlib
import sys
from typing import Any

from absl import flags

from experiments.benchmarks import turns
from experiments.engine import reports

OURS = 'ours'
# Number of a side's answer -> column of the table.
MEASURES = {
  'wall_sec': 'seconds',
  'min_sec': 'min s',
  'cpu_sec': 'CPU s',
  'peak_gib': 'peak GiB',
}
Results = dict[str, dict[str, dict[str, float]]]


def define_flags(peer: str, repeats: int) -> None:
  """Define --baseline_python, --repeats, --output and --serve.

  Args:
    peer: packages that the baseline's interpreter needs.
  """
  flags.DEFINE_string('baseline_python', '', f'Python with {peer}.')
  flags.DEFINE_integer('repeats', repeats, 'Timed rounds.', lower_bound=1)
  flags.DEFINE_string('output', '', 'JSON file to write.')
  flags.DEFINE_string('serve', '', 'Sizes; be our side of a running benchmark.')


def serve(build: Callable[[dict[str, Any]], Mapping[str, Callable]]) -> bool:
  """Be our side, with the steps of `build(sizes)`, if --serve is given."""
  if not flags.FLAGS.serve:
    return False
  turns.serve(build(json.loads(flags.FLAGS.serve)))
  return True


def start_peer(
  sizes: Mapping[str, Any],
  baseline_python: str,
  worker: Sequence[str],
  env: Mapping[str, str] | None = None,
) -> turns.Side:
  """Start a peer's side; the arguments are those of `measure`."""
  script = str(pathlib.Path(__file__).with_name(worker[0]))
  arguments = [baseline_python, script, *worker[1:], _text(sizes)]
  return turns.Side(arguments, env)


def _text(sizes: Mapping[str, Any]) -> str:
  num_threads = len(os.sched_getaffinity(0))
  return json.dumps({**sizes, 'num_threads': num_threads})


def measure(
  module: str,
  sizes: Mapping[str, Any],
  baseline_python: str,
  workers: Mapping[str, Sequence[str]],
  steps: Mapping[str, bool],
  repeats: int,
  warmup: int = 1,
  env: Mapping[str, str] | None = None,
) -> Results:
  """Time our side in turn with those of peers, if their interpreter is given.

  Args:
    module: program that is our side when it gets --serve.
    sizes: JSON values that all sides get; num_threads is added.
    baseline_python: interpreter of the peers, or ''.
    workers: name of a peer -> its script beside this module, and arguments.
    steps: name -> whether the peers have the step.
    repeats: timed rounds, after `warmup` untimed ones.
    env: variables added to the peers' environment.

  Returns:
    step -> side -> numbers. With one peer the side 'ratio' has its numbers over
    ours.
  """
  arguments = [sys.executable, '-m', module, f'--serve={_text(sizes)}']
  with contextlib.ExitStack() as stack:
    sides = {OURS: stack.enter_context(turns.Side(arguments))}
    for peer, worker in workers.items() if baseline_python else ():
      side = start_peer(sizes, baseline_python, worker, env)
      sides[peer] = stack.enter_context(side)
    names = {
      step: [x for x in sides if x == OURS or of_peer]
      for step, of_peer in steps.items()
    }
    results = turns.alternate(sides, names, repeats, warmup)
  for found in results.values():
    if len(found) == 2:
      add_ratio(found)
  return results


def add_ratio(found: dict[str, dict[str, float]]) -> None:
  """Add the side 'ratio', the only peer's numbers over ours, to one step."""
  ours, theirs = found.values()
  found['ratio'] = {k: theirs[k] / ours[k] for k in MEASURES}


def show(
  results: Results, title: str, rates: Mapping[str, tuple[float, str]]
) -> None:
  """Print a table with a line for each step and side.

  Args:
    results: step -> side -> numbers; 'ratio' is the last side.
    rates: step -> items that the step processes, and their unit.
  """
  lines = []
  for step, found in results.items():
    for side, values in found.items():
      cells = [f'{values[k]:.2f}' if k in values else '' for k in MEASURES]
      if step in rates and side != 'ratio':
        count, unit = rates[step]
        cells.append(f'{count / values["wall_sec"]:,.1f} {unit}/s')
      lines.append((step, side, *cells))
  heads = ('step', 'side', *MEASURES.values(), 'rate')
  reports.print_table(heads, lines, title)


def write(results: Mapping[str, Any]) -> None:
  """Write the results and the load average to --output, if it is given."""
  if flags.FLAGS.output:
    content = {**results, 'load_average': os.getloadavg()[0]}
    reports.write_json(flags.FLAGS.output, content)
