# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time one of our parts against a peer, in turn on the same machine.

  python -m experiments.benchmarks.benchmark --task=retro \
    --baseline_python=VENV/bin/python

Task, and the packages of its peer, which --baseline_python has or (*) this interpreter:

  retro   a step, a forward pass; retro-pytorch==0.3.9, faiss-cpu, numpy<2, pyarrow<20
  realm   a step of REALM; transformers==4.40.2, torch, numpy<2
  embed   chunks of --set=data=DIR by MiniLM; sentence-transformers[onnx]
  sparse  BM25, built and searched; bm25s*, faster with numba*
  search  our searchers and FAISS's, with their recall; faiss-cpu*

Each side is a process, which tells the kernels and threads it computed with;
one runs at a time. Without --baseline_python only ours are timed. The table has medians
of a step, the peak of resident memory, what the step added to it, and ratios to the
first side for each item (x: seconds, X: CPU seconds). --set=batch=4 changes a size;
`taskset -c 0` before the command times one core; --nokeep_memory lets all sides return
freed memory.
"""

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

# Modules with SIDES, of which another interpreter runs those in PEERS, SIZES, and
# `prepare`, done once before the sides start; it returns more sizes.
TASKS = ('retro', 'realm', 'embed', 'sparse', 'search')
# glibc's malloc keeps freed memory, as our trainings let it.
_KEEP_MEMORY = {
  'MALLOC_ARENA_MAX': '1', 'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': '-1',
}  # fmt: skip


def load(name: str) -> Any:
  """Return the module of a benchmark."""
  return importlib.import_module(f'experiments.benchmarks.{name}')


def run(
  name: str, sizes: dict, python='', repeats=5, keep=True
) -> turns.Results:
  """Return numbers of all steps; `keep`: sides keep freed memory, as trainings do."""
  task, threads, sides = load(name), len(os.sched_getaffinity(0)), {}
  env = {'HF_HUB_OFFLINE': '1', **(_KEEP_MEMORY if keep else {})}
  ours = [sys.executable, '-m', turns.__name__, task.__name__]
  # The folder of `turns` is where another interpreter looks for the module.
  theirs = [python, turns.__file__, name]
  with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
    settings = {'num_threads': threads, 'folder': folder, **task.SIZES, **sizes}
    settings |= task.prepare(settings) if hasattr(task, 'prepare') else {}
    for side in task.SIDES:
      code = theirs if side in getattr(task, 'PEERS', ()) else ours
      if code[0]:
        code = [*code, side, json.dumps(settings)]
        sides[side] = stack.enter_context(turns.side(code, env))
    return turns.alternate(sides, repeats)


def show(results: turns.Results, title: str) -> None:
  """Print a line for each step and side, with ratios to the first side."""

  def text(value: float | None) -> str:
    form = ',.0f' if abs(value or 0) >= 100 else '.3g'
    return '' if value is None else f'{value:{form}}'

  columns = [*dict.fromkeys(k for x in results.values() for k in x)]
  lines, first = [], {}
  for (step, side), values in results.items():
    each = [values[x] / values.get('items', 1) for x in ('seconds', 'CPU s')]
    ratios = zip(each, first.setdefault(step, each), strict=True)
    cells = [values.get(x) for x in columns] + [1 / each[0]]
    cells += [a / max(b, 1e-9) for a, b in ratios]
    lines.append((f'{step}, {side}', *map(text, cells)))
  reports.print_table(('step, side', *columns, '/s', *'xX'), lines, title)


def main(argv: list[str]) -> None:
  """Measure and print the table."""
  del argv
  options = flags.FLAGS
  sizes, known = {}, load(options.task).SIZES
  for name, _, text in (x.partition('=') for x in options.set):
    if name not in known:
      raise ValueError(f'--set={name}: expected one of {sorted(known)}.')
    sizes[name] = text if isinstance(known[name], str) else json.loads(text)
  how = options.baseline_python, options.repeats, options.keep_memory
  show(run(options.task, sizes, *how), options.task)


if __name__ == '__main__':
  flags.DEFINE_enum('task', None, TASKS, 'What to time.')
  flags.DEFINE_string('baseline_python', '', 'Interpreter that has the peer.')
  flags.DEFINE_multi_string('set', [], 'NAME=VALUE of a size.')
  flags.DEFINE_integer('repeats', 5, 'Timed rounds.', 1)
  flags.DEFINE_bool('keep_memory', True, 'Keep freed memory, as training does.')
  flags.mark_flag_as_required('task')
  command.main_of_script(main)
