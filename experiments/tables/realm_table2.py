# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Run rows of REALM's Table 2 and print it: masks and index refreshes.

  python -m experiments.tables.realm_table2 --config=configs/<name>.py --workdir=DIR
  python -m experiments.tables.realm_table2 ... --row=salient
  python -m experiments.tables.realm_table2 ... --row=salient \
    --qa_config=configs/open_qa_small.py --dataset=webquestions:dev=train.json

Without --row the command prints the table, with "not run" for each figure that
was not measured. With --row it first runs the unfinished parts of that row: the
data, ICT for the embedder, MLM for the encoder and the row's pre-training, in
DIR/data, DIR/ict, DIR/mlm and DIR/<name>; then it measures the zero-shot recall
on config.evaluate.questions. With --qa_config and --dataset it also fine-tunes
on --qa_config.questions.train, in DIR/qa, and measures the exact match. Rows
that share a retriever differ in the exact match only. --config names the data
of both. The paper's figures are of NQ dev at full size. The flags of
experiments.tables.realm_table1 for the best checkpoint are --qa_config.* here.
"""

from collections.abc import Mapping, Sequence
import json
import pathlib
from typing import Any

from absl import flags, logging
import ml_collections
from ml_collections import config_flags

from experiments.engine import command, reports
from experiments.realm import (
  evaluate as realm_evaluate,
  prepare as realm_prepare,
  settings as settings_lib,
  task as realm_task,
  zero_shot,
)
from experiments.tables import paper_table, realm_systems
from realm_jax.data import folder as realm_data
from realm_jax.serving import index_folders, trained as trained_lib
from retrieval.questions import question_sets

FILE = 'zero_shot.json'
TABLE = paper_table.load('realm_2')
# The last two, start and bm25, are not in the paper.
SYSTEMS = realm_systems.systems_of(TABLE)
_AT = realm_systems.AT  # documents, as in the paper
# File of questions, matching rule, number of questions.
_Column = tuple[str, str, int]


def _column(row: Mapping[str, Any]) -> _Column:
  file = pathlib.Path(row['questions_file']).stem
  return file, row['rule'], row['questions']


def _write_recall(
  folder: pathlib.Path, retriever: str, retrieve, blocks, settings
) -> None:
  """Measure a retriever; results on other questions are kept."""
  rows = zero_shot.measure({retriever: retrieve}, blocks, settings)
  path = folder / FILE
  before = json.loads(path.read_text()) if path.exists() else []
  kept = {_column(row): row for row in [*before, *rows]}
  reports.write_json(path, list(kept.values()))


def measure_recall(
  kind: str, config: ml_collections.ConfigDict, root: pathlib.Path
) -> None:
  """Measure the recall of a retriever, after the unfinished training.

  Args:
    config: config of the experiment with its data_dir set.
  """
  data = realm_data.DataFolder.of(config, root)
  realm_prepare.run(config, str(root))
  folder = root / kind
  if kind == 'bm25':
    retrieve = realm_evaluate.bm25_retriever(data)
  else:
    if kind == 'start':
      start = command.changed(config, embedder_from='')
      trained = realm_task.untrained(start, data)
    else:
      folder = pathlib.Path(realm_systems.train(kind, config, root))
      trained = trained_lib.load_realm(folder, str(data.root))
    index = trained.open_index(folder / index_folders.INDEX)
    retrieve = realm_evaluate.retriever(trained, index)
  _write_recall(folder, kind, retrieve, data.blocks, config.evaluate)


def recalls(root: pathlib.Path) -> dict[str, dict[_Column, Any]]:
  """Read the shares of recall@5 by retriever and column."""
  kinds = dict.fromkeys(system.retriever for system in SYSTEMS.values())
  return {
    kind: {
      _column(x): x.get(f'recall@{_AT}')
      for x in json.loads((root / kind / FILE).read_text())
    }
    for kind in kinds
    if (root / kind / FILE).exists()
  }


def print_table(
  root: pathlib.Path,
  sets: Sequence[question_sets.QuestionSet] = (),
  settings: ml_collections.ConfigDict | None = None,
) -> None:
  """Print our measured figures beside the paper's.

  Args:
    sets: question sets whose exact match is shown; () for all measured sets.
  """
  found = recalls(root)
  measured = realm_systems.read(list(SYSTEMS.values()), root)
  exact = realm_systems.columns(measured, sets, settings)
  columns = sorted({column for shares in found.values() for column in shares})
  heads = [f'EM {head}' for head in exact.values()]
  heads += [
    f'recall@{_AT} {file}, {rule} ({count:,})' for file, rule, count in columns
  ] or ['ours']
  body = []
  for row in TABLE.rows:
    system = SYSTEMS[row.run]
    scores = measured.get(system, {}).get('sets', {})
    shares = found.get(system.retriever, {})
    cells = [realm_systems.exact_match(scores.get(key)) for key in exact]
    cells += [_cell(shares.get(column)) for column in columns] or [_cell(None)]
    body.append([row.name, *row.paper, *cells, row.run])
  reports.print_table(
    ['system', *(f'paper {x}' for x in TABLE.columns), *heads, 'row'],
    body,
    caption=realm_systems.scale(measured) if exact else '',
    wrap=True,
  )


def _cell(share: Mapping[str, float] | None) -> str:
  if share is None:
    return paper_table.NOT_RUN
  mean, low, high = (100 * share[k] for k in ('mean', 'low', 'high'))
  return f'{mean:.1f} [{low:.1f}, {high:.1f}]'


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Run the rows of --row, then print the table."""
  root, values = pathlib.Path(workdir), flags.FLAGS
  config = command.changed(
    config,
    data_dir=config.data_dir or str(root / 'data'),
    evaluate={'ks': tuple(sorted({*config.evaluate.ks, _AT}))},
  )
  if bool(values.dataset) != bool(values.qa_config):
    raise ValueError('--qa_config and --dataset go together: one is missing.')
  realm_systems.check_rows(values.row, SYSTEMS)
  if values.row and not (config.evaluate.questions or values.dataset):
    raise ValueError('evaluate.questions is empty: recall needs questions.')
  sets, qa_config, settings = [], None, None
  if values.qa_config:
    qa_config = realm_systems.share_data(values.qa_config, config, root)
    settings = qa_config.evaluate
    sets = question_sets.load_sets(
      values.dataset,
      settings.max_questions,
      qa_config.questions.allow_other_counts,
    )
  for name in values.row:
    logging.info('Row %s.', name)
    if config.evaluate.questions:
      measure_recall(SYSTEMS[name].retriever, config, root)
    if qa_config is not None:
      realm_systems.run(SYSTEMS[name], qa_config, config, sets, root)
  print_table(root, sets, settings)


def define_flags() -> None:
  """Define --row, --qa_config and --dataset."""
  realm_systems.define_flags(SYSTEMS)
  config_flags.DEFINE_config_file(
    'qa_config',
    None,
    'Configuration of the fine-tuning, file.py[:arg]; without it the command '
    'measures the recall alone.',
    lock_config=True,
  )


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, define_flags, writes=FILE)
