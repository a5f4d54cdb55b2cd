# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time one of our parts against a peer, in turn on the same machine.

  python -m experiments.benchmarks.benchmark --task=retro \
    --baseline_python=VENV/bin/python

Task, and the packages that --baseline_python has for its peer:

  retro     a step and a forward pass of RETRO; retro-pytorch==0.3.9 on torch, with
            numpy<2 and pyarrow<20
  decode    writing texts with retrieval, with and without a cache; retro-pytorch's
            `generate`, which needs faiss-cpu, too
  realm     a step of REALM, embedding blocks; transformers==4.40.2, torch, numpy<2
  qa        answering and fine-tuning on questions, as RealmForOpenQA does; the same
  embed     embedding chunks of --set=data=DIR by MiniLM; sentence-transformers[onnx]
  sparse    BM25 and TF-IDF, built and searched; bm25s (installed here; also numba)
  search    our searchers and FAISS's (pip install faiss-cpu), with their recall
  released  exact search of as many vectors as REALM's released index has
  shards    an index, and the same in shards: speed, memory, recall

Each side is a process of its own; only one runs at a time. Without --baseline_python
only ours are timed. At its end each side tells the kernels and threads it computed
with; FAISS has the fastest of OpenBLAS's kernels. The table has the median seconds of a
step, CPU seconds, the peak of resident memory, what the step added to it, items a
second, and ratios to the first side for each item; the JSON file also the shortest and
the first round. --set changes a size, such as --set=batch=4. `taskset -c 0` before the
command times one core. --nokeep_memory lets all sides return freed memory.
"""

from collections.abc import Mapping
import contextlib
import importlib
import json
import os
import sys
import tempfile
from typing import Any

from absl import flags

from experiments.benchmarks import turns
from experiments.engine import command, reports

# Name of a benchmark -> module that has it.
MODULES = {
  'retro': 'retro',
  'decode': 'retro',
  'realm': 'realm',
  'qa': 'qa',
  'embed': 'embed',
  'sparse': 'sparse',
  'search': 'search',
  'released': 'shards',
  'shards': 'shards',
}
# Number of a side -> column of the table; other numbers follow by name.
_COLUMNS = {
  'wall_sec': 'seconds',
  'cpu_sec': 'CPU s',
  'peak_gib': 'GiB',
  'more_mib': '+MiB',
}
# glibc's malloc keeps freed memory, as our trainings let it.
_KEEP_MEMORY = {
  'MALLOC_ARENA_MAX': '1',
  'MALLOC_MMAP_MAX_': '0',
  'MALLOC_TRIM_THRESHOLD_': '-1',
}
Results = dict[str, dict[str, turns.Numbers]]  # step -> side -> numbers


def load(name: str) -> turns.Task:
  """Return a benchmark."""
  module = importlib.import_module(f'experiments.benchmarks.{MODULES[name]}')
  return module.TASKS[name]


def run(
  name: str,
  sizes: Mapping[str, Any],
  folder: str,
  baseline_python: str = '',
  repeats: int = 0,
  keep_memory: bool = True,
) -> Results:
  """Time all sides.

  Args:
    name: one of `MODULES`.
    sizes: values that differ from those of the benchmark.
    folder: for what the sides share.
    baseline_python: interpreter of the peers; '' leaves them out.
    repeats: timed rounds; 0 for the benchmark's number.
    keep_memory: whether all sides keep freed memory, as our trainings do.
  """
  task = load(name)
  threads = len(os.sched_getaffinity(0))
  given = {'num_threads': threads, 'folder': folder, **task.sizes, **sizes}
  given |= task.prepare(given)

  def start(side: str):
    ours = f'{task.build.__module__}:{task.build.__name__}'
    code = [sys.executable, '-m', turns.__name__, ours]
    if side in task.peers:
      code = [baseline_python, turns.__file__, f'{task.peers[side]}:build']
    env = {'HF_HUB_OFFLINE': '1', **(_KEEP_MEMORY if keep_memory else {})}
    env |= task.env(side)
    return turns.side([*code, side, json.dumps(given)], env)

  names = [x for x in task.sides if baseline_python or x not in task.peers]
  results: Results = {}
  for group in [[x] for x in names] if task.apart else [names]:
    with contextlib.ExitStack() as stack:
      sides = {x: stack.enter_context(start(x)) for x in group}
      found = turns.alternate(sides, repeats or task.repeats, task.rounds_first)
    for step, values in found.items():
      results.setdefault(step, {}).update(values)
  return results


def _text(value: float) -> str:
  return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.3g}'


def show(results: Results, title: str) -> None:
  """Print a line for each step and side, with ratios to the first side."""

  def per_item(values: turns.Numbers, name: str) -> float:
    return max(values[name] / values.get('items', 1), 1e-9)

  found = [x for sides in results.values() for x in sides.values()]
  hidden = {*_COLUMNS, 'items', 'min_sec', 'first_sec'}
  columns = dict.fromkeys([*_COLUMNS, *(k for x in found for k in x)])
  columns = [x for x in columns if x in _COLUMNS or x not in hidden]
  ratios = {'x': 'wall_sec', 'x CPU': 'cpu_sec'}
  if all(len(sides) == 1 for sides in results.values()):
    ratios = {}
  lines = []
  for step, sides in results.items():
    first = next(iter(sides.values()))
    for side, values in sides.items():
      cells = [_text(values[k]) if k in values else '' for k in columns]
      cells.append(_text(1 / per_item(values, 'wall_sec')))
      for name in ratios.values():
        cells.append(f'{per_item(values, name) / per_item(first, name):.2f}')
      lines.append((f'{step}, {side}', *cells))
  heads = [_COLUMNS.get(x, x) for x in columns]
  reports.print_table(('step, side', *heads, '/s', *ratios), lines, title)


def _sizes(values: list[str], known: set[str]) -> dict[str, Any]:
  """Parse --set; a value is JSON or a text."""
  found = {}
  for value in values:
    name, _, text = value.partition('=')
    if name not in known:
      raise ValueError(f'--set={value}: expected one of {sorted(known)}.')
    try:
      found[name] = json.loads(text)
    except ValueError:
      found[name] = text
  return found


def main(argv: list[str]) -> None:
  """Measure, print the table and write the JSON file."""
  del argv
  options = flags.FLAGS
  task = load(options.task)
  sizes = _sizes(options.set, set(task.sizes))
  with tempfile.TemporaryDirectory(dir=options.workdir or None) as folder:
    python, repeats = options.baseline_python, options.repeats
    keep = options.keep_memory
    results = run(options.task, sizes, folder, python, repeats, keep)
  show(results, options.task)
  if options.output:
    content = {'sizes': {**task.sizes, **sizes}, 'steps': results}
    content['load_average'] = os.getloadavg()[0]
    reports.write_json(options.output, content)


if __name__ == '__main__':
  flags.DEFINE_enum('task', None, [*MODULES], 'What to time.')
  flags.DEFINE_string('baseline_python', '', 'Interpreter that has the peer.')
  flags.DEFINE_multi_string('set', [], 'NAME=VALUE of a size.')
  flags.DEFINE_integer('repeats', 0, 'Timed rounds; 0: as the task says.', 0)
  flags.DEFINE_bool('keep_memory', True, 'Keep freed memory, as training does.')
  command.define_output('output', '', 'JSON file to write.')
  flags.DEFINE_string('workdir', '', 'Folder for temporary files.')
  flags.mark_flag_as_required('task')
  command.main_of_script(main)
