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
import pathlib
from typing import Any

from absl import flags
import numpy as np

from experiments.engine import evaluations, reports
from experiments.realm import (
  config as config_lib,
  evaluate as evaluators,
  recall,
  starts,
)
from realm_jax.data import folder as realm_data
from realm_jax.trained import loading

FILE = 'compare.json'
BM25 = 'bm25'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(recall.Recall):
  """Comparison of retrievers."""


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
  settings: recall.Recall,
) -> dict[str, np.ndarray]:
  """Measure one run; it must search the blocks of `data`.

  Returns:
    'questions, measure' -> [n] its values, one for each question.
  """
  retrieve, searched = _retriever(data, data_dir, run)
  if searched.blocks.fingerprint != data.blocks.fingerprint:
    raise ValueError(
      f'{run["workdir"]}: searches the blocks of {searched.root}; expected those '
      f'of {data.root}, which --config.data_dir names.'
    )
  values = {}
  tables = recall.tables(name, retrieve, searched.blocks, settings)
  for file, ranks_by_rule in tables:
    for rule, ranks in ranks_by_rule.items():
      questions = f'{pathlib.Path(file).name}, {rule}'
      for k in sorted({*settings.ks}):
        values[f'{questions}, recall@{k}'] = (ranks < k).astype(float)
      values[f'{questions}, mrr'] = 1 / (1 + ranks)
  return values


def _by_questions(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """Return question set -> measure -> value."""
  nested: dict[str, dict[str, Any]] = {}
  for name, value in values.items():
    questions, _, measured = name.rpartition(', ')
    nested.setdefault(questions, {})[measured] = value
  return nested


def compare(
  config: config_lib.Run,
  workdir: str,
  settings: Compare,
  texts: Sequence[str] | None = None,
) -> dict[str, Any]:
  """Print recall@k and the mean reciprocal rank; write DIR/compare.json.

  In percent, with 95 % intervals of a paired bootstrap over questions against
  the first row. The file holds each row's differences from all others, and
  compare.npz the value of each question: 'row, questions, measure' -> [seeds, n].

  Args:
    texts: rows; None are those of --row.
  """
  texts = flags.FLAGS.row if texts is None else texts
  runs = evaluations.parse_rows(texts, {'step': str}, no_folders=(BM25,))
  files = [pathlib.Path(file).name for file in settings.questions]
  if not files or len({*files}) < len(files):
    raise ValueError(
      f'compare.questions: {files}, expected files of questions, each of another '
      'name.'
    )
  data = realm_data.DataFolder.of(config, workdir)
  rows = []
  for name, seeds in runs.items():
    each = [measure(data, config.data_dir, name, x, settings) for x in seeds]
    values = {key: np.stack([x[key] for x in each]) for key in each[0]}
    means = _by_questions({k: float(x.mean()) for k, x in values.items()})
    facts = {'runs': seeds, 'questions': means}
    rows.append(evaluations.Row(name=name, values=values, facts=facts))
  minus = evaluations.differences(rows)
  for row in rows:
    row.facts['minus'] = {
      other: _by_questions(less) for other, less in minus[row.name].items()
    }
  for questions, arrays in _by_questions(rows[0].values).items():
    count = arrays['mrr'].shape[1]
    _print(rows, questions, f'{questions}: {count:,} questions')
  evaluations.write(pathlib.Path(workdir) / FILE, rows)
  return {'rows': [{'name': row.name, **row.facts} for row in rows]}


def _print(rows: Sequence[evaluations.Row], questions: str, title: str) -> None:
  lines, first = [], rows[0].name
  for row in rows:
    means = row.facts['questions'][questions]
    lines.append([row.name, *(f'{100 * x:.1f}' for x in means.values())])
    if row.name != first:
      less = row.facts['minus'][first][questions].values()
      lines.append([f'less {first}', *map(reports.signed, less)])
  reports.print_table(['row', *means], lines, title=title)
