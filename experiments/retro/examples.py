# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluators of JSON lines: last words (LAMBADA) and summaries.

  python -m experiments.evaluate --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.evaluators=lambada \
    --config.evaluate.examples.path=lambada_test.jsonl

lambada: accuracy of the last word of {"text": ...}. The model continues all but the
  last word, always with the likeliest token, and the first word of the continuation
  is compared with the last word of the text, without the punctuation around them
  (Paperno et al. 2016; Borgeaud et al. 2021, section 3).
summary: bits per byte of the summary in {"article" (or "text"): ..., "summary": ...},
  the Curation Corpus's form. The model reads the article and "TL; DR:"; the summary
  alone is scored, with the blank before it (Borgeaud et al. 2021, section 3).

Evaluates RETRO with retrieval on and off, and the baseline of
--config.evaluate.baseline_workdir. Prints a table and writes DIR/lambada.json, with
the words, or DIR/summary.json, and the values of each example to .npz beside it.
"""

from collections.abc import Callable
import dataclasses
import itertools
import math
import pathlib
import string

import numpy as np

from experiments.engine import evaluations, progress, reports, stages
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retrieval.questions import bootstrap
from retrieval.readers import base as readers, json_files
from retro_jax.trained import language_model

WORD_TOKENS = 16  # drawn for each text; only a longer last word gets more
PROMPT = '\n\nTL; DR:'
_AROUND = string.punctuation + '\u2018\u2019\u201c\u201d\u2014\u2026'
# Model, its number of neighbors, name of the row -> a value of each example, their
# weights (None for a mean), and more facts of the row.
Measure = Callable[[language_model.LanguageModel, int, str], tuple]


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


def first_word(text: str) -> str:
  """The first word without punctuation around it; '' for an empty text."""
  words = text.split()
  return words[0].strip(_AROUND) if words else ''


def last_words(
  model: language_model.LanguageModel,
  k: int,
  name: str,
  examples: list[tuple[str, str]],
  batch_size: int,
) -> list[str]:
  """Return the next word of each context by a model with k neighbors."""
  tokenizer = model.data.tokenizer
  # One bound for all texts, or a word would depend on the others' targets. One
  # token after the longest word's shows whether it has ended.
  longest = max(len(tokenizer.encode(f' {word}').ids) for _, word in examples)
  # Equal lengths together, so that few programs are compiled.
  lengths = [len(tokenizer.encode(context).ids) for context, _ in examples]
  order = np.argsort(lengths, kind='stable').tolist()
  with progress.bar(f'last words, {name}', 'tokens') as update:
    samples = model.sample(
      [examples[i][0] for i in order],
      neighbors=None if k else [],
      num_neighbors=k,
      batch_size=batch_size,
      max_new_tokens=max(WORD_TOKENS, longest + 1),
      temperature=0.0,
      progress=update,
    )
  words = dict(zip(order, samples, strict=True))
  return [first_word(words[i].completion) for i in range(len(examples))]


def lambada(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Measure the accuracy of the last word of each text."""
  texts = read(evaluate.examples, ('text',))
  examples = [split(text) for (text,) in texts]
  batch_size = evaluate.batch_size

  def measure(model, k, name):
    words = last_words(model, k, name, examples, batch_size)
    right = [
      bool(word) and word == target.strip(_AROUND)
      for word, (_, target) in zip(words, examples, strict=True)
    ]
    return np.asarray(right, np.float64), None, {'words': words}

  _run(config, workdir, evaluate, 'lambada', 'accuracy', measure)


def summary(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Measure bits per byte of the summary of each article."""
  examples = read(evaluate.examples, ('article', 'text'), ('summary',))
  size = np.asarray([len(f' {s}'.encode()) for _, s in examples])

  def measure(model, k, name):
    with progress.bar(f'summaries, {name}', 'windows') as update:
      likelihoods = model.loglikelihood(
        [article + PROMPT for article, _ in examples],
        [f' {text}' for _, text in examples],
        num_neighbors=k,
        stride_chunks=evaluate.stride_chunks,
        batch_size=evaluate.batch_size,
        progress=update,
      )
    return np.array([x.nats for x in likelihoods]), size, {}

  _run(config, workdir, evaluate, 'summary', 'bits_per_byte', measure)


def _run(
  config: config_lib.Config,
  workdir: str,
  evaluate: retro_evaluate.Evaluate,
  name: str,
  field: str,
  measure: Measure,
) -> None:
  """Measure each model with and without retrieval; print and write the table."""
  stages.check_alone()
  runs = retro_evaluate.load_runs(config, evaluate, workdir, on_mesh=False)
  rows = []
  for run, model in runs.items():
    model.data.check_tokenizer()
    readings = retro_evaluate.on_and_off(model, [evaluate.k])
    for label, reading in readings.items():
      k = reading.num_neighbors(evaluate.k)
      values, num_bytes, more = measure(model, k, label)
      weights = None if num_bytes is None else math.log(2) * num_bytes
      interval = vars(bootstrap.bootstrap(values, weights))
      facts = {
        'retrieval': reading.retrieval,
        'num_neighbors': k,
        'step': model.step,
        'workdir': run,
        'examples': len(values),
        field: interval['mean'],
        **interval,
      }
      row = {'values': {'': values}, 'facts': facts | more}
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
    title=f'{rows[0].facts["examples"]:,} examples',
    caption='Interval: 95 % of a bootstrap over examples.',
  )
