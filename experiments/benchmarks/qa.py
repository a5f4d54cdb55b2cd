# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time question answering against transformers 4.40.2, and exact search.

  python -m experiments.benchmarks.qa --baseline_python=VENV/bin/python
  python -m experiments.benchmarks.qa --part=search

The first command answers questions from 100,000 blocks and fine-tunes on one
question at a time with a retriever beam of 5,000, as RealmForOpenQA does (VENV also
holds torch 2.13.0 and numpy<2). Both sides have the same sizes, texts and questions
and random weights, and take turns in processes of their own. `train` has a gold span
in the blocks that are read; `train_nothing` has no answer in any block, and our
reader is skipped. Three more numbers say where our time goes: `find` embeds the
question and searches, `match` looks for answers and builds the reader's rows on the
host, `device` is the model's step. Without --baseline_python only ours is timed.

The second command searches as many vectors as the released index holds (qa_search).
"""

from collections.abc import Collection
import pathlib
from typing import Any

from absl import flags

from experiments.benchmarks import comparison, qa_data, qa_search, qa_steps
from experiments.engine import command, reports
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
ANSWERS = (qa_data.ANSWER,)
NO_ANSWERS = ('zyx qwv',)
# Name -> whether the peer has the step; the peer takes one question at a time.
STEPS = {
  'answer': True,
  'answer_batch': False,
  'train': True,
  'train_nothing': True,
}
PEER = 'transformers'
_PARTS = ('find_sec', 'match_sec', 'device_sec')


def measure(
  baseline_python: str,
  root: pathlib.Path,
  repeats: int,
  sizes: dict[str, Any],
  steps: Collection[str] = tuple(STEPS),
) -> comparison.Results:
  """Time both sides in turn.

  Args:
    baseline_python: interpreter of the baseline, '' for ours alone.
    root: folder made by `qa_data.prepare`.
    sizes: of the model, its rows and the beams.

  Returns:
    step -> side -> numbers a question, with the ratio of the baseline to ours.
    Ours also has find_sec, match_sec and device_sec.
  """
  given = sizes | {
    'root': str(root),
    'questions': qa_data.QUESTIONS,
    'answers': ANSWERS,
    'no_answers': NO_ANSWERS,
  }
  results = comparison.measure(
    'experiments.benchmarks.qa',
    given,
    baseline_python,
    {PEER: ('realm_worker.py', 'qa')},
    {step: STEPS[step] for step in steps},
    repeats,
  )
  if 'answer_batch' in results:
    _compare_batch(results, sizes['batch'])
  return results


def _compare_batch(results: comparison.Results, batch: int) -> None:
  """Make the batch's numbers those of a question, beside the peer's answer."""
  ours = results['answer_batch'][comparison.OURS]
  for name in ours:
    if name.endswith('_sec'):
      ours[name] /= batch
  if PEER in results.get('answer', {}):
    results['answer_batch'][PEER] = results['answer'][PEER]
    comparison.add_ratio(results['answer_batch'])


def _print(results: comparison.Results) -> None:
  comparison.show(results, 'Question answering, a question', {})
  rows = []
  for step, sides in results.items():
    find, match, device = (sides[comparison.OURS][k] for k in _PARTS)
    cells = (find, match, device, match / (find + device))
    rows.append((step, *(f'{x:.3f}' for x in cells)))
  reports.print_table(('step', *_PARTS, 'host / device'), rows)


def _compare(options) -> dict:
  corpus = corpus_lib.CorpusConfig()
  if options.data:
    corpus = corpus_lib.CorpusConfig('jsonl', options.data)
  sizes = SIZES | {'num_blocks': options.num_blocks}
  root = qa_data.prepare(
    options.workdir, sizes['num_blocks'], sizes['row_length'], corpus
  )
  results = measure(options.baseline_python, root, options.repeats, sizes)
  _print(results)
  return {'sizes': sizes, 'steps': results}


def main(argv: list[str]) -> None:
  """Measure, print the table and write the JSON file."""
  del argv
  options = flags.FLAGS
  if comparison.serve(qa_steps.build):
    return
  if options.part == 'search':
    folder = pathlib.Path(options.workdir)
    found = qa_search.run(folder, options.num_vectors, options.repeats)
  else:
    found = _compare(options)
  comparison.write(found)


if __name__ == '__main__':
  comparison.define_flags('transformers 4.40.2', 5)
  flags.DEFINE_enum('part', 'model', ['model', 'search'], 'Benchmark to run.')
  flags.DEFINE_string('workdir', 'runs/benchmark_qa', 'Folder of the data.')
  flags.DEFINE_string('data', '', 'JSON lines with texts; packaged articles.')
  flags.DEFINE_integer('num_blocks', SIZES['num_blocks'], 'For --part=model.')
  flags.DEFINE_integer('num_vectors', 13_353_718, 'For --part=search.')
  command.main_of_script(main)
