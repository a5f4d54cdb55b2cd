# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Recall of several retrievers, with their seeds, on the same questions.

A row is a name and a run of REALM or ICT, or bm25; runs of one name are seeds of one
row, and a question counts with the mean of its seeds. Option of a run: step=N, a
number, `best`, or 0 for the retriever before training. All rows search the blocks of
one data folder.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from absl import flags
import numpy as np

from experiments.engine import named_runs, reports
from experiments.realm import (
  config as config_lib,
  evaluate as evaluators,
  recall,
)
from realm_jax.data import folder as realm_data
from realm_jax.serving import trained_models
from retrieval.questions import bootstrap

FILE = 'compare.json'
BM25 = 'bm25'
# Name of a measure -> [n] its values, one for each question.
Values = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(recall.Recall):
  """Comparison of retrievers."""


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of the table: the runs of a name, by question set."""

  name: str
  seeds: list[dict[str, Values]]  # question set -> values

  def mean(self, questions: str, measure: str) -> np.ndarray:
    """Value of each question, the mean of the seeds."""
    return np.mean([x[questions][measure] for x in self.seeds], axis=0)


def _retriever(
  data: realm_data.DataFolder, data_dir: str, run: Mapping[str, Any]
) -> tuple[recall.Retrieve, realm_data.DataFolder]:
  """A run's retriever and its data."""
  step = run.get('step', '')
  if run['workdir'] == BM25:
    if step:
      raise ValueError(f'{BM25} has no steps, but {run} names one.')
    return recall.bm25(data), data
  trained = trained_models.load(
    run['workdir'], data_dir, step='' if step == '0' else step, part='realm'
  )
  if step == '0':
    run_config = config_lib.of_run(run['workdir'])
    trained = evaluators.untrained(run_config, trained)
  index = evaluators.open_index(trained)
  return recall.dense(trained, index), trained.data


def measure(
  data: realm_data.DataFolder,
  data_dir: str,
  name: str,
  run: Mapping[str, Any],
  wanted: recall.Recall,
) -> dict[str, Values]:
  """Measure one run: question set -> name of a measure -> [n] values."""
  retrieve, own = _retriever(data, data_dir, run)
  if own.blocks.fingerprint != data.blocks.fingerprint:
    raise ValueError(
      f'{run["workdir"]}: searches the blocks of {own.root}; expected those of '
      f'{data.root}, which --config.data_dir names.'
    )
  return {
    f'{pathlib.Path(file).name}, {rule}': {
      f'recall@{k}': (ranks < k).astype(float) for k in sorted({*wanted.ks})
    }
    | {'mrr': 1 / (1 + ranks)}
    for file, found in recall.tables(name, retrieve, own.blocks, wanted)
    for rule, ranks in found.items()
  }


def minus(row: Row, other: Row) -> dict[str, dict[str, Any]]:
  """Question set -> measure -> interval of the difference, and that of each seed."""
  pairs = named_runs.pairs(row.name, row.seeds, other.name, other.seeds)

  def difference(questions, name):
    less = row.mean(questions, name) - other.mean(questions, name)
    each = [
      float((a[questions][name] - b[questions][name]).mean()) for a, b in pairs
    ]
    interval = dataclasses.asdict(bootstrap.bootstrap(less))
    return {**interval, 'of_seeds': each}

  return {
    questions: {name: difference(questions, name) for name in values}
    for questions, values in row.seeds[0].items()
  }


def _print(rows: Sequence[Row], less: Sequence[Mapping[str, Any]]) -> None:
  """One table for each question set."""
  first = rows[0]
  for questions, measures in first.seeds[0].items():
    lines = []
    for row, differences in zip(rows, less, strict=True):
      means = [f'{100 * row.mean(questions, x).mean():.1f}' for x in measures]
      lines.append([row.name, *means])
      if row is not first:
        found = differences[first.name][questions].values()
        lines.append([f'less {first.name}', *map(reports.signed, found)])
    count = len(next(iter(measures.values())))
    reports.print_table(
      ['row', *measures], lines, title=f'{questions}: {count:,} questions'
    )


def compare(config: config_lib.Run, workdir: str, wanted: Compare) -> None:
  """Compare the runs of --row."""
  compare_rows(config, workdir, wanted, flags.FLAGS.row)


def compare_rows(
  config: config_lib.Run, workdir: str, wanted: Compare, values: Sequence[str]
) -> dict[str, Any]:
  """Print recall@k and the mean reciprocal rank; write DIR/compare.json.

  In percent, with 95 % intervals of a paired bootstrap over questions against
  the first row. The file holds each row's differences from all others (`minus`).
  """
  given = named_runs.parse(
    values,
    {'step': str},
    'step=N, a number (0: before training) or best',
    no_folders=(BM25,),
  )
  files = [pathlib.Path(file).name for file in wanted.questions]
  if not files or len({*files}) < len(files):
    raise ValueError(
      f'compare.questions: {files}, expected files of questions, each of another '
      'name.'
    )
  data = realm_data.DataFolder.of(config, workdir)
  rows = [
    Row(name, [measure(data, config.data_dir, name, x, wanted) for x in runs])
    for name, runs in given.items()
  ]
  less: dict[str, dict[str, Any]] = {row.name: {} for row in rows}
  for one, two in itertools.combinations(rows, 2):
    less[two.name][one.name] = found = minus(two, one)
    less[one.name][two.name] = {
      questions: {x: named_runs.mirrored(y) for x, y in measures.items()}
      for questions, measures in found.items()
    }
  _print(rows, [less[row.name] for row in rows])
  content = [
    {
      'name': row.name,
      'runs': given[row.name],
      'questions': {
        questions: {name: float(row.mean(questions, name).mean()) for name in x}
        for questions, x in row.seeds[0].items()
      },
      'minus': less[row.name],
    }
    for row in rows
  ]
  reports.write_json(pathlib.Path(workdir) / FILE, {'rows': content})
  return {'rows': content}
