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

The second command searches as many vectors as the released index holds.
"""

import pathlib
import time
from typing import Any

from absl import flags, logging
import jax
import ml_dtypes
import numpy as np

from experiments.benchmarks import (
  comparison,
  qa_data,
  qa_steps,
  realm,
  turns,
)
from experiments.engine import command, progress, reports
from retrieval import searchers
from retrieval.store import sharded_array, store
from retrieval.text import corpus as corpus_lib

SIZES = realm.ENCODER | {
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
# Of --part=search.
_DIMENSION = 128
_QUERIES = 64
_NUM_FOUND = 5
_ROWS = 1 << 18  # written at once


def measure(
  baseline_python: str,
  root: pathlib.Path,
  repeats: int,
  sizes: dict[str, Any],
) -> comparison.Results:
  """Time both sides in turn, as `comparison.measure` does, for one question.

  `root` was made by `qa_data.prepare`. Our side also has find_sec, match_sec and
  device_sec.
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
    STEPS,
    repeats,
  )
  # The batch's numbers become those of a question, beside the peer's answer.
  in_batch = results['answer_batch']
  ours = in_batch[comparison.OURS]
  for name in ours:
    if name.endswith('_sec'):
      ours[name] /= sizes['batch']
  if PEER in results['answer']:
    in_batch[PEER] = results['answer'][PEER]
    comparison.add_ratio(in_batch)
  return results


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


def make_vectors(folder: pathlib.Path, count: int) -> np.ndarray:
  """Return mapped random vectors [count, _DIMENSION]; write them at first use."""
  file = folder / f'vectors-{count}.npy'
  if not file.exists():
    logging.info('Writing %s.', file)
    rng = np.random.default_rng(0)
    shape = (count, _DIMENSION)
    with store.open_atomically(file) as f:
      header = {'descr': '<V2', 'fortran_order': False, 'shape': shape}
      np.lib.format.write_array_header_1_0(f, header)
      for low in range(0, count, _ROWS):
        shape = (min(_ROWS, count - low), _DIMENSION)
        rows = rng.standard_normal(shape, np.float32)
        f.write(rows.astype(ml_dtypes.bfloat16).tobytes())
  return sharded_array.open_npy(file)


def search(folder: pathlib.Path, count: int, repeats: int) -> dict[str, Any]:
  """Search exactly among as many vectors as REALM's released index holds.

  The vectors (3.4 GB in bfloat16, random) are memory-mapped. A device with
  enough memory keeps them; otherwise they stream, once for each batch of
  queries.

  Returns:
    {'num_vectors', 'queries', 'device', 'first_sec', 'wall_sec' (median),
    'host_gib' (without the mapped file), 'mapped_gib' (the file's part in
    memory), 'device_gib' (0 if the device does not report it)}.
  """
  vectors = make_vectors(folder, count)
  searcher = searchers.ExactSearcher(vectors, check=False)
  rng = np.random.default_rng(1)
  seconds = []
  for _ in range(repeats + 1):
    queries = rng.standard_normal((_QUERIES, _DIMENSION), np.float32)
    start = time.perf_counter()
    searcher.search(queries, _NUM_FOUND)
    seconds.append(time.perf_counter() - start)
  device = jax.local_devices()[0]
  stats = device.memory_stats() or {}
  mapped = turns.status_bytes('RssFile')
  result = {
    'num_vectors': count,
    'queries': _QUERIES,
    'device': device.device_kind,
    'first_sec': seconds[0],
    'wall_sec': float(np.median(seconds[1:])),
    'host_gib': turns.status_bytes('RssAnon') / 2**30,
    'mapped_gib': mapped / 2**30,
    'device_gib': stats.get('peak_bytes_in_use', 0) / 2**30,
  }
  progress.console().print(
    f'{count:,} x {_DIMENSION} bfloat16 vectors on {result["device"]}: '
    f'{result["wall_sec"]:.2f} s for {_QUERIES} queries '
    f'({_QUERIES / result["wall_sec"]:.1f}/s; the first time '
    f'{result["first_sec"]:.2f} s), {result["host_gib"]:.2f} GiB of host memory, '
    f'{result["mapped_gib"]:.2f} GiB of the mapped file in memory, '
    f'{result["device_gib"]:.2f} GiB on the device',
    highlight=False,
    soft_wrap=True,
  )
  return result


def main(argv: list[str]) -> None:
  """Measure, print the table and write the JSON file."""
  del argv
  options = flags.FLAGS
  if comparison.serve(qa_steps.build):
    return
  if options.part == 'search':
    folder = pathlib.Path(options.workdir)
    found = search(folder, options.num_vectors, options.repeats)
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
