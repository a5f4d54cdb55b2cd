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
only ours are timed. The table has the median seconds of a step, CPU seconds, the peak
of resident memory, what the step added to it, items a second, and ratios to the first
side for each item; the JSON file also the shortest and the first round. --set changes a
size, such as --set=batch=4. `taskset -c 0` before the command times one core.
"""

import json
import os
import tempfile

from absl import flags

from experiments.benchmarks import comparison
from experiments.engine import command, reports


def _sizes(values: list[str], known: set[str]) -> dict:
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
  if len(argv) > 1:
    raise ValueError(f'Unexpected arguments {argv[1:]}; flags start with --.')
  options = flags.FLAGS
  task = comparison.load(options.task)
  sizes = _sizes(options.set, set(task.sizes))
  with tempfile.TemporaryDirectory(dir=options.workdir or None) as folder:
    results = comparison.run(
      options.task,
      sizes,
      folder,
      options.baseline_python,
      options.repeats,
      options.baseline_keeps_memory,
    )
  comparison.show(results, options.task)
  if options.output:
    content = {
      'sizes': {**task.sizes, **sizes},
      'steps': results,
      'load_average': os.getloadavg()[0],
    }
    reports.write_json(options.output, content)


if __name__ == '__main__':
  flags.DEFINE_enum('task', None, [*comparison.MODULES], 'What to time.')
  flags.DEFINE_string('baseline_python', '', 'Interpreter that has the peer.')
  flags.DEFINE_multi_string('set', [], 'NAME=VALUE of a size.')
  flags.DEFINE_integer('repeats', 0, 'Timed rounds; 0: as the task says.', 0)
  flags.DEFINE_bool(
    'baseline_keeps_memory', False, 'Let the peer keep freed memory, too.'
  )
  flags.DEFINE_string('output', '', 'JSON file to write.')
  flags.DEFINE_string('workdir', '', 'Folder for temporary files.')
  flags.mark_flag_as_required('task')
  command.main_of_script(main)
