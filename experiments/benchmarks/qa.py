# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed of question answering against transformers 4.40.2, and of exact search.

  python -m experiments.benchmarks.qa --baseline_python=VENV/bin/python
  python -m experiments.benchmarks.qa --part=search

The first answers questions from 100,000 blocks and fine-tunes on one at a time with a
retriever beam of 5000, as RealmForOpenQA does (VENV also holds torch 2.13.0 and
numpy<2): the same sizes, texts and questions, weights at random, the two sides in
turns, in processes of their own. `train` has a gold span in the blocks that are read,
`train_nothing` no answer anywhere, where our reader rests. Of our steps it also says
where the time goes: `find` embeds the question and searches, `match` looks for
answers and builds the reader's rows on the host, `device` is the model's step.
Without --baseline_python only ours is timed.

The second searches as many vectors as the released index holds (benchmark_qa_search).
"""

from collections.abc import Callable
import contextlib
import json
import os
import pathlib
import sys
from typing import Any

from absl import flags
import numpy as np
import rich.table

from experiments.benchmarks import qa_data as benchmark_qa_data
from experiments.benchmarks import qa_search as benchmark_qa_search
from experiments.benchmarks import turns as benchmark_turns
from experiments.engine import command
from experiments.engine import progress
from retrieval.text import corpus as corpus_lib

SIZES = {
  'vocab_size': 30_522,
  'd_model': 512,
  'num_layers': 4,
  'num_heads': 8,
  'd_ff': 2048,
  'vector_size': 128,
  'num_blocks': 100_000,
  'retriever_beam': 5000,
  'reader_beam': 5,
  'row_length': 320,
  'question_length': 32,
  'max_span_width': 10,
  'batch': 16,
}
ANSWERS = (benchmark_qa_data.ANSWER,)
NO_ANSWERS = ('zyx qwv',)
# Name -> whether the other side has it, which takes one question at a time.
STEPS = {
  'answer': True,
  'answer_batch': False,
  'train': True,
  'train_nothing': True,
}
_MEASURES = ('wall_sec', 'cpu_sec', 'peak_gib')
_PARTS = ('find_sec', 'match_sec', 'device_sec')


def _start(baseline_python: str, sizes: dict[str, Any]):
  """Name -> side."""
  text = json.dumps(sizes)
  module = ('-m', 'experiments.benchmarks.qa', f'--serve={text}')
  yield 'ours', benchmark_turns.Side([sys.executable, *module])
  if baseline_python:
    worker = pathlib.Path(__file__).with_name('qa_worker.py')
    yield (
      'transformers',
      benchmark_turns.Side([baseline_python, str(worker), text]),
    )


def measure(
  baseline_python: str,
  root: pathlib.Path,
  repeats: int,
  sizes: dict[str, int],
) -> list[dict]:
  """Times both sides in turn.

  Args:
    baseline_python: interpreter of the baseline, '' for ours alone.
    root: of `benchmark_qa_data.prepare`.
    repeats: timed rounds after an untimed one.
    sizes: of the model, its rows and the beams.

  Returns:
    Of each step {'step', side: {measure: value}, 'ratio': {measure: baseline /
    ours}}; medians, the peak of memory, and of ours also _PARTS.
  """
  given = sizes | {
    'root': str(root),
    'questions': benchmark_qa_data.QUESTIONS,
    'answers': ANSWERS,
    'no_answers': NO_ANSWERS,
    'num_threads': len(os.sched_getaffinity(0)),
  }
  times = {}
  with contextlib.ExitStack() as stack:
    sides = {
      name: stack.enter_context(contextlib.closing(side))
      for name, side in _start(baseline_python, given)
    }
    for step, both in STEPS.items():
      for i in range(-1, repeats):
        for name, side in sides.items():
          if name == 'ours' or both:
            found = side.measure(step)
            if i >= 0:
              times.setdefault((step, name), []).append(found)
  return _summary(times, sizes['batch'])


def _summary(times: dict[tuple[str, str], list[dict]], batch: int) -> list:
  results = {}
  for (step, name), rows in times.items():
    values = {k: float(np.median([row[k] for row in rows])) for k in rows[0]}
    values['peak_gib'] = max(row['peak_gib'] for row in rows)
    result = results.setdefault(step, {'step': step, 'questions': 1})
    result[name] = values
    if not STEPS[step]:
      result['questions'] = batch
  for result in results.values():
    if 'transformers' in result:
      theirs, ours = result['transformers'], result['ours']
      result['ratio'] = {k: theirs[k] / ours[k] for k in _MEASURES}
  _add_batch_ratio(results)
  return list(results.values())


def _add_batch_ratio(results: dict[str, dict]) -> None:
  """A question of our batch against one of theirs."""
  theirs = results['answer'].get('transformers')
  if theirs and 'answer_batch' in results:
    result = results['answer_batch']
    ours = result['ours']
    result['ratio'] = {
      k: theirs[k] * result['questions'] / ours[k]
      for k in ('wall_sec', 'cpu_sec')
    }


def _print(results: list[dict]) -> None:
  columns = ('step', 'side', 's/question', 'CPU s/question', 'peak GiB')
  table = rich.table.Table(*columns, 'find', 'match', 'device')
  for result in results:
    sides = [n for n in ('ours', 'transformers', 'ratio') if n in result]
    for name in sides:
      values = result[name]
      share = 1 if name == 'ratio' else result['questions']
      cells = [f'{values[k] / share:.3f}' for k in _MEASURES[:2]]
      cells.append(f'{values["peak_gib"]:.2f}' if 'peak_gib' in values else '')
      cells += [f'{values[k] / share:.3f}' for k in _PARTS if k in values]
      table.add_row(
        *(result['step'], name, *cells), end_section=name == sides[-1]
      )
  console = progress.console()
  console.print(table)
  for result in results:
    ours = result['ours']
    if result['step'].startswith('train'):
      share = ours['match_sec'] / (ours['find_sec'] + ours['device_sec'])
      console.print(
        f'{result["step"]}: the host works {share:.2f} times as long as the '
        'device.',
        highlight=False,
      )


def _build(sizes: dict[str, Any]) -> dict[str, Callable[[], Any]]:
  """Our side, which alone needs the models."""
  from experiments.benchmarks import qa_steps as benchmark_qa_steps

  return benchmark_qa_steps.build(sizes)


def _compare(options) -> dict:
  corpus = corpus_lib.CorpusConfig()
  if options.data:
    corpus = corpus_lib.CorpusConfig('jsonl', options.data)
  sizes = SIZES | {'num_blocks': options.num_blocks}
  root = benchmark_qa_data.prepare(
    options.workdir, sizes['num_blocks'], sizes['row_length'], corpus
  )
  results = measure(options.baseline_python, root, options.repeats, sizes)
  _print(results)
  return {'sizes': sizes, 'steps': results}


def main(argv: list[str]) -> None:
  """Measures, prints the table and writes the JSON."""
  del argv
  options = flags.FLAGS
  if options.serve:
    command.keep_memory()
    benchmark_turns.serve(_build(json.loads(options.serve)))
    return
  if options.part == 'search':
    found = benchmark_qa_search.run(
      pathlib.Path(options.workdir), options.num_vectors, options.repeats
    )
  else:
    found = _compare(options)
  if options.output:
    found['load_average'] = os.getloadavg()[0]
    text = json.dumps(found, indent=2) + '\n'
    pathlib.Path(options.output).write_text(text)


if __name__ == '__main__':
  flags.DEFINE_enum('part', 'model', ['model', 'search'], 'What is measured.')
  flags.DEFINE_string('baseline_python', '', 'Python with transformers 4.40.2.')
  flags.DEFINE_string('workdir', 'runs/benchmark_qa', 'Where the data go.')
  flags.DEFINE_string('data', '', 'JSON lines with texts; packaged articles.')
  flags.DEFINE_integer('num_blocks', SIZES['num_blocks'], 'Of --part=model.')
  flags.DEFINE_integer('num_vectors', 13_353_718, 'Of --part=search.')
  flags.DEFINE_integer('repeats', 5, 'Timed rounds.', lower_bound=1)
  flags.DEFINE_string('output', '', 'JSON file to write.')
  flags.DEFINE_string('serve', '', 'Sizes; be our side of a running benchmark.')
  command.main_of_script(main)
