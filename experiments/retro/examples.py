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
the words, or DIR/summary.json.
"""

from collections.abc import Iterator
import dataclasses
import itertools
import math
import pathlib
import string
from typing import Any

import numpy as np

from experiments.engine import progress, reports, stages
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retrieval.questions import bootstrap
from retrieval.readers import base as readers, json_files
from retro_jax.trained import language_model

WORD_TOKENS = 16  # drawn for each text; only a longer last word gets more
PROMPT = '\n\nTL; DR:'
_AROUND = string.punctuation + '\u2018\u2019\u201c\u201d\u2014\u2026'


@dataclasses.dataclass(frozen=True)
class Mode:
  """A model and its kind of retrieval."""

  name: str  # of the row
  retrieval: str  # 'on' or 'off'
  num_neighbors: int  # k
  trained: language_model.LanguageModel
  workdir: str  # of the model's run


def read(
  examples: retro_evaluate.Examples, *fields: tuple[str, ...]
) -> list[tuple[str, ...]]:
  """Read the examples that a config names; each field has one of some names."""
  path, found = pathlib.Path(examples.path), []
  if not path.is_file():
    wanted = ' and '.join('|'.join(names) for names in fields)
    raise FileNotFoundError(
      f'config.evaluate.examples.path={examples.path!r}: expected a file of JSON '
      f'lines with {wanted}.'
    )
  limit = examples.max_examples or None
  for where, record in itertools.islice(json_files.read(path), limit):
    chosen = [next((n for n in x if n in record), x[0]) for x in fields]
    found.append(tuple(readers.string(record, n, where) for n in chosen))
  if not found:
    raise ValueError(f'{path}: holds no example.')
  return found


def modes(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> Iterator[Mode]:
  """RETRO with retrieval on and off, and the baseline that the config names."""
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  baseline = retro_evaluate.load_baseline(config, evaluate, trained.data.root)
  runs = {evaluate.workdir or workdir: trained}
  if baseline is not None:
    runs[evaluate.baseline_workdir] = baseline
  for run, one in runs.items():
    for name, retrieval, k in retro_evaluate.on_and_off(one, [evaluate.k]):
      yield Mode(name, retrieval, k, one, run)


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
  mode: Mode, examples: list[tuple[str, str]], batch_size: int
) -> list[str]:
  """The word with which a model continues each context."""
  tokenizer, k = mode.trained.data.tokenizer, mode.num_neighbors
  # One bound for all texts, or a word would depend on the others' targets. One
  # token after the longest word's shows whether it has ended.
  longest = max(len(tokenizer.encode(f' {word}').ids) for _, word in examples)
  # Equal lengths together, so that few programs are compiled.
  lengths = [len(tokenizer.encode(given).ids) for given, _ in examples]
  order = np.argsort(lengths, kind='stable').tolist()
  with progress.bar(f'last words, {mode.name}', 'tokens') as update:
    found = mode.trained.sample(
      [examples[i][0] for i in order],
      neighbors=None if k else [],
      num_neighbors=k,
      batch_size=batch_size,
      max_new_tokens=max(WORD_TOKENS, longest + 1),
      temperature=0.0,
      progress=update,
    )
  words = {
    i: first_word(x.completion) for i, x in zip(order, found, strict=True)
  }
  return [words[i] for i in range(len(examples))]


def summary_nats(
  mode: Mode,
  examples: list[tuple[str, str]],
  evaluate: retro_evaluate.Evaluate,
) -> np.ndarray:
  """[examples] nats of the summaries."""
  with progress.bar(f'summaries, {mode.name}', 'windows') as update:
    found = mode.trained.loglikelihood(
      [article + PROMPT for article, _ in examples],
      [f' {text}' for _, text in examples],
      num_neighbors=mode.num_neighbors,
      stride_chunks=evaluate.stride_chunks,
      batch_size=evaluate.examples.batch_size,
      progress=update,
    )
  return np.array([x.nats for x in found])


def lambada(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Measure the accuracy of the last word of each text."""
  texts = read(evaluate.examples, ('text',))
  examples = [split(text) for (text,) in texts]

  def measure(mode: Mode):
    words = last_words(mode, examples, evaluate.examples.batch_size)
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
  size = np.asarray([len(f' {s}'.encode()) for _, s in examples], np.float64)

  def measure(mode: Mode):
    nats = summary_nats(mode, examples, evaluate)
    return nats / math.log(2), size, {}

  _run(config, workdir, evaluate, 'summary', 'bits_per_byte', measure)


def _run(config, workdir, evaluate, name, field, measure) -> None:
  """Measure each mode, print the table and write NAME.json."""
  stages.check_alone()
  rows: list[dict[str, Any]] = []
  for mode in modes(config, workdir, evaluate):
    mode.trained.data.check_tokenizer()
    values, weights, more = measure(mode)
    found = bootstrap.bootstrap(values, weights)
    row = {
      'name': mode.name,
      'retrieval': mode.retrieval,
      'num_neighbors': mode.num_neighbors,
      'step': mode.trained.step,
      'workdir': mode.workdir,
      'examples': len(values),
      field: found.mean,
      'low': found.low,
      'high': found.high,
    }
    rows.append(row | more)
  content = {'rows': rows, 'settings': dataclasses.asdict(evaluate.examples)}
  reports.write_json(pathlib.Path(workdir) / f'{name}.json', content)
  reports.print_table(
    ('model', field.replace('_', ' '), 'interval'),
    [
      (x['name'], f'{x[field]:.4f}', f'{x["low"]:.4f} {x["high"]:.4f}')
      for x in rows
    ],
    title=f'{rows[0]["examples"]:,} examples',
    caption='Interval: 95 % of a bootstrap over examples.',
  )
