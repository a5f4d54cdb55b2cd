# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluators of JSON lines: last words (LAMBADA) and summaries.

  python -m experiments.evaluate --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.evaluators=lambada \
    --config.evaluate.examples.path=lambada_test.jsonl

lambada: accuracy of the last word of {"text": ...}, right where each of its tokens is
  the likeliest one after all words before it (Paperno et al. 2016; Borgeaud et al.
  2021, section 3).
summary: bits per byte of the summary in {"article" (or "text"): ..., "summary": ...},
  the Curation Corpus's form. The model reads the article and "TL; DR:"; the summary
  alone is scored, with the blank before it (Borgeaud et al. 2021, section 3).

Evaluates RETRO with retrieval on and off, and the baseline of
--config.evaluate.baseline_workdir. Prints a table and writes DIR/lambada.json or
DIR/summary.json, and the values of each example to .npz beside it.
"""

import dataclasses
import itertools
import math
import pathlib

import numpy as np

from experiments.engine import evaluations, progress, reports, stages
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retrieval.questions import bootstrap
from retrieval.readers import base as readers, json_files

PROMPT = '\n\nTL; DR:'


def read(
  examples: retro_evaluate.Examples, *fields: tuple[str, ...]
) -> list[tuple[str, ...]]:
  """Read the examples that a config names; each field has one of some names."""
  path, rows = pathlib.Path(examples.path), []
  if not path.is_file():
    names = ' and '.join('|'.join(x) for x in fields)
    raise FileNotFoundError(
      f'config.evaluate.examples.path={examples.path!r}: expected a file of JSON '
      f'lines with {names}.'
    )
  limit = examples.max_examples or None
  for where, record in itertools.islice(json_files.read(path), limit):
    chosen = [next((n for n in x if n in record), x[0]) for x in fields]
    rows.append(tuple(readers.string(record, n, where) for n in chosen))
  if not rows:
    raise ValueError(f'{path}: holds no example.')
  return rows


def split(text: str) -> tuple[str, str]:
  """Return all words but the last, and the last word."""
  parts = text.rstrip().rsplit(None, 1)
  if len(parts) < 2:
    raise ValueError(f'LAMBADA: {text!r} has no word before its last one.')
  return parts[0], parts[1]


def lambada(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Measure the accuracy of the last word of each text."""
  texts = [split(text) for (text,) in read(evaluate.examples, ('text',))]
  _run(config, workdir, evaluate, 'lambada', texts)


def summary(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Measure bits per byte of the summary of each article."""
  examples = read(evaluate.examples, ('article', 'text'), ('summary',))
  texts = [(article + PROMPT, summary) for article, summary in examples]
  _run(config, workdir, evaluate, 'summary', texts)


def _run(config, workdir, evaluate, name, texts) -> None:
  """Score the second of each pair of texts after the first; print and write."""
  stages.check_alone()
  runs = retro_evaluate.load_runs(config, evaluate, workdir, on_mesh=False)
  is_word, rows, weights, num_bytes = name == 'lambada', [], None, None
  field = 'accuracy' if is_word else 'bits_per_byte'
  if not is_word:
    num_bytes = np.asarray([len(f' {text}'.encode()) for _, text in texts])
    weights = math.log(2) * num_bytes
  for run, model in runs.items():
    model.data.check_tokenizer()
    readings = retro_evaluate.on_and_off(model, [evaluate.k])
    for label, reading in readings.items():
      k = reading.num_neighbors(evaluate.k)
      with progress.bar(f'{name}, {label}', 'windows') as update:
        scored = model.loglikelihood(
          [context for context, _ in texts],
          [f' {text}' for _, text in texts],
          num_neighbors=k,
          stride_chunks=evaluate.stride_chunks,
          batch_size=evaluate.batch_size,
          progress=update,
        )
      values = [float(x.is_greedy) if is_word else x.nats for x in scored]
      interval = vars(bootstrap.bootstrap(np.array(values), weights))
      facts = {
        'retrieval': reading.retrieval,
        'num_neighbors': k,
        'step': model.step,
        'workdir': run,
        'examples': len(values),
        field: interval['mean'],
        **interval,
      }
      row = {'values': {'': np.array(values)}, 'facts': facts}
      rows.append(evaluations.Row(name=label, num_bytes=num_bytes, **row))
  evaluations.write(
    pathlib.Path(workdir) / f'{name}.json',
    rows,
    settings=dataclasses.asdict(evaluate.examples),
  )
  lines = []
  for x in rows:
    interval = reports.ends(x.facts, '.4f')
    lines.append((x.name, f'{x.facts[field]:.4f}', interval))
  reports.print_table(
    ('model', field.replace('_', ' '), 'interval'),
    lines,
    title=f'{len(texts):,} examples',
    caption='Interval: 95 % of a bootstrap over examples.',
  )
