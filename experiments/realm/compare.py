# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare the recall of several retrievers, with their seeds, on the same questions.

  python -m experiments.realm.compare --config=configs/<name>.py --workdir=DIR \
    --config.data_dir=DATA --config.evaluate.questions="('questions.jsonl',)" \
    --row=ict=RUN --row=ict=SECOND_SEED --row=realm=RUN,step=best --row=bm25=bm25

A row is a name and a training run of experiments.realm.train, of REALM or ICT, or bm25;
runs of one name are seeds of one row, and a question counts with the mean of its seeds.
Option of a run: step=N, a number, `best`, or 0 for the retriever before training. All
rows search the blocks of one data folder.

Prints recall@k (the share of questions with an answer in the first k blocks) and the
mean reciprocal rank, 0 for an answer behind the largest k of --config.evaluate.ks, in
percent, with intervals of a paired bootstrap over questions against the first row. Writes DIR/compare.json, where each row has its differences from
all others (`minus`), as experiments.tables.claims reads them.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from absl import flags
import ml_collections
import numpy as np

from experiments.engine import command, named_runs, reports
from experiments.realm import (
  evaluate as realm_evaluate,
  settings as settings_lib,
  task as realm_task,
  zero_shot,
)
from realm_jax.data import folder as realm_data
from realm_jax.serving import trained_models
from retrieval.questions import bootstrap

FILE = 'compare.json'
BM25 = 'bm25'
# Name of a measure -> [n] its values, one for each question.
Values = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of the table: the runs of a name, by question set."""

  name: str
  seeds: list[dict[str, Values]]  # question set -> values

  def mean(self, questions: str, measure: str) -> np.ndarray:
    """Value of each question, the mean of the seeds."""
    return np.mean([x[questions][measure] for x in self.seeds], axis=0)


def _retriever(
  config: ml_collections.ConfigDict, workdir: str, run: Mapping[str, Any]
) -> tuple[zero_shot.RetrieveFn, realm_data.DataFolder]:
  """A run's retriever and its data."""
  if run['workdir'] == BM25:
    if 'step' in run:
      raise ValueError(f'--row: {BM25} has no steps, but {run} names one.')
    data = realm_data.DataFolder.of(config, workdir)
    return realm_evaluate.bm25_retriever(data), data
  step = run.get('step', config.evaluate.step)
  trained = trained_models.load(
    run['workdir'],
    config.data_dir,
    step='' if step == '0' else step,
    part='realm',
  )
  if step == '0':
    start = realm_task.untrained(trained.config, trained.data)
    trained = dataclasses.replace(start, index_folder=trained.index_folder)
  index = realm_evaluate.open_index(trained)
  return realm_evaluate.retriever(trained, index), trained.data


def measure(
  config: ml_collections.ConfigDict,
  workdir: str,
  name: str,
  run: Mapping[str, Any],
) -> dict[str, Values]:
  """Measure one run: question set -> name of a measure -> [n] values.

  Raises:
    FileNotFoundError: without a checkpoint, data or questions.
  """
  retrieve, data = _retriever(config, workdir, run)
  wanted = realm_data.DataFolder.of(config, workdir).blocks
  if data.blocks.fingerprint != wanted.fingerprint:
    raise ValueError(
      f'{run["workdir"]}: searches the blocks of {data.root}; expected those of '
      f'{wanted.path}, which --config.data_dir names.'
    )
  found = {}
  for file, table in zero_shot.tables(
    name, retrieve, data.blocks, config.evaluate
  ):
    for row in table:
      ranks = np.where(row.first_hits < 0, np.inf, row.first_hits)
      values = {f'recall@{k}': (ranks < k).astype(float) for k in row.shares}
      values['mrr'] = 1 / (1 + ranks)
      found[f'{pathlib.Path(file).name}, {row.rule}'] = values
  return found


def minus(row: Row, other: Row) -> dict[str, dict[str, Any]]:
  """Question set -> measure -> interval of the difference, and that of each seed."""
  found: dict[str, dict[str, Any]] = {}
  for questions, values in row.seeds[0].items():
    found[questions] = {}
    for name in values:
      less = row.mean(questions, name) - other.mean(questions, name)
      pairs = named_runs.pairs(row.name, row.seeds, other.name, other.seeds)
      each = [
        float((a[questions][name] - b[questions][name]).mean())
        for a, b in pairs
      ]
      interval = dataclasses.asdict(bootstrap.bootstrap(less))
      found[questions][name] = {**interval, 'of_seeds': each}
  return found


def _print(rows: Sequence[Row], less: Sequence[Mapping[str, Any]]) -> None:
  """One table for each question set."""
  first = rows[0]
  for questions, measures in first.seeds[0].items():
    lines = []
    for row, differences in zip(rows, less, strict=True):
      means = [f'{100 * row.mean(questions, x).mean():.1f}' for x in measures]
      lines.append([row.name, *means])
      if row is not first:
        found = differences[first.name][questions]
        lines.append(
          [
            f'less {first.name}',
            *(reports.signed(x) for x in found.values()),
          ]
        )
    count = len(next(iter(first.seeds[0][questions].values())))
    reports.print_table(
      ['row', *measures], lines, title=f'{questions}: {count:,} questions'
    )


def run(
  config: ml_collections.ConfigDict, workdir: str, values: Sequence[str]
) -> dict[str, Any]:
  """Print the tables, write the file and return its content.

  Raises:
    ValueError: for rows that do not fit, or without questions.
  """
  given = named_runs.parse(
    values,
    {'step': str},
    'step=N, a number (0: before training) or best',
    no_folders=(BM25,),
  )
  files = [pathlib.Path(file).name for file in config.evaluate.questions]
  if not files or len({*files}) < len(files):
    raise ValueError(
      f'evaluate.questions: {files}, expected files of questions, each of another '
      'name.'
    )
  rows = [
    Row(name, [measure(config, workdir, name, run) for run in runs])
    for name, runs in given.items()
  ]
  of = {row.name: {} for row in rows}
  for one, two in itertools.combinations(rows, 2):
    of[two.name][one.name] = found = minus(two, one)
    of[one.name][two.name] = {
      questions: {x: named_runs.mirrored(y) for x, y in measures.items()}
      for questions, measures in found.items()
    }
  less = [of[row.name] for row in rows]
  content = [
    {
      'name': row.name,
      'runs': given[row.name],
      'questions': {
        questions: {name: float(row.mean(questions, name).mean()) for name in x}
        for questions, x in row.seeds[0].items()
      },
      'minus': differences,
    }
    for row, differences in zip(rows, less, strict=True)
  ]
  _print(rows, less)
  found = {'rows': content}
  reports.write_json(pathlib.Path(workdir) / FILE, found)
  return found


if __name__ == '__main__':
  command.main(
    lambda config, workdir: run(config, workdir, flags.FLAGS.row) and None,
    settings_lib.Settings,
    named_runs.define_flag,
    writes=FILE,
  )
