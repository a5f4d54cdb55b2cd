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
  starts,
)
from realm_jax.data import folder as realm_data
from realm_jax.trained import loading
from retrieval.questions import bootstrap

FILE = 'compare.json'
BM25 = 'bm25'
# (question set, name of a measure) -> [n] its values, one for each question.
Values = dict[tuple[str, str], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(recall.Recall):
  """Comparison of retrievers."""


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of the table: the values of the runs of a name."""

  name: str
  seeds: list[Values]

  def mean(self, key: tuple[str, str]) -> np.ndarray:
    """Value of each question, the mean of the seeds."""
    return np.mean([x[key] for x in self.seeds], axis=0)

  def minus(self, other: 'Row', key: tuple[str, str]) -> dict[str, Any]:
    """Interval of the difference of two rows, and that of each seed."""
    pairs = named_runs.pairs(self.name, self.seeds, other.name, other.seeds)
    interval = bootstrap.bootstrap(self.mean(key) - other.mean(key))
    each = [float((a[key] - b[key]).mean()) for a, b in pairs]
    return dataclasses.asdict(interval) | {'of_seeds': each}


def _retriever(
  data: realm_data.DataFolder, data_dir: str, run: Mapping[str, Any]
) -> tuple[recall.Retrieve, realm_data.DataFolder]:
  """A run's retriever and its data."""
  step = run.get('step', '')
  if run['workdir'] == BM25:
    if step:
      raise ValueError(f'{BM25} has no steps, but {run} names one.')
    return recall.bm25(data), data
  trained = loading.load(
    run['workdir'], data_dir, step='' if step == '0' else step, part='realm'
  )
  if step == '0':
    trained = starts.untrained(
      config_lib.of_run(run['workdir']), trained.data, trained.index_folder
    )
  index = evaluators.open_index(trained)
  return recall.dense(index, trained.data, trained.layout), trained.data


def measure(
  data: realm_data.DataFolder,
  data_dir: str,
  name: str,
  run: Mapping[str, Any],
  wanted: recall.Recall,
) -> Values:
  """Measure one run, which is to search the blocks of `data`."""
  retrieve, own = _retriever(data, data_dir, run)
  if own.blocks.fingerprint != data.blocks.fingerprint:
    raise ValueError(
      f'{run["workdir"]}: searches the blocks of {own.root}; expected those of '
      f'{data.root}, which --config.data_dir names.'
    )
  found = {}
  for file, ranks_by_rule in recall.tables(name, retrieve, own.blocks, wanted):
    for rule, ranks in ranks_by_rule.items():
      questions = f'{pathlib.Path(file).name}, {rule}'
      for k in sorted({*wanted.ks}):
        found[questions, f'recall@{k}'] = (ranks < k).astype(float)
      found[questions, 'mrr'] = 1 / (1 + ranks)
  return found


def _by_questions(found: Mapping[tuple[str, str], Any]) -> dict[str, dict]:
  """Return question set -> measure -> value."""
  nested: dict[str, dict] = {}
  for (questions, name), value in found.items():
    nested.setdefault(questions, {})[name] = value
  return nested


def compare(
  config: config_lib.Run,
  workdir: str,
  wanted: Compare,
  values: Sequence[str] | None = None,
) -> dict[str, Any]:
  """Print recall@k and the mean reciprocal rank; write DIR/compare.json.

  In percent, with 95 % intervals of a paired bootstrap over questions against
  the first row. The file holds each row's differences from all others, and
  compare.npz the value of each question: 'row, questions, measure' -> [seeds, n].

  Args:
    values: rows; None are those of --row.
  """
  values = flags.FLAGS.row if values is None else values
  given = named_runs.parse(values, {'step': str}, no_folders=(BM25,))
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
  minus: dict[str, dict[str, Any]] = {row.name: {} for row in rows}
  keys = list(rows[0].seeds[0])
  for one, two in itertools.combinations(rows, 2):
    less = {key: two.minus(one, key) for key in keys}
    more = {key: named_runs.mirrored(x) for key, x in less.items()}
    minus[two.name][one.name] = _by_questions(less)
    minus[one.name][two.name] = _by_questions(more)
  content = [
    {
      'name': row.name,
      'runs': given[row.name],
      'questions': _by_questions({k: float(row.mean(k).mean()) for k in keys}),
      'minus': minus[row.name],
    }
    for row in rows
  ]
  for questions, names in _by_questions(rows[0].seeds[0]).items():
    count = len(names['mrr'])
    _print(content, questions, f'{questions}: {count:,} questions')
  path = reports.write_json(pathlib.Path(workdir) / FILE, {'rows': content})
  values = {
    ', '.join((row.name, *key)): [x[key] for x in row.seeds]
    for row in rows
    for key in keys
  }
  reports.write_arrays(path.with_suffix('.npz'), values)
  return {'rows': content}


def _print(
  content: Sequence[Mapping[str, Any]], questions: str, title: str
) -> None:
  lines, first = [], content[0]['name']
  for row in content:
    means = row['questions'][questions]
    lines.append([row['name'], *(f'{100 * x:.1f}' for x in means.values())])
    if row['name'] != first:
      less = row['minus'][first][questions].values()
      lines.append([f'less {first}', *map(reports.signed, less)])
  reports.print_table(['row', *means], lines, title=title)
