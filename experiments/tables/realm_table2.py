# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Table 2 of REALM: what its retriever owes to salient spans and a fresh index.

  python -m experiments.tables.realm_table2 --config=configs/<name>.py --workdir=DIR
  python -m experiments.tables.realm_table2 ... --row=salient
  python -m experiments.tables.realm_table2 ... --row=salient \
    --qa_config=configs/open_qa_small.py --dataset=webquestions:dev=train.json

Without --row it prints the table, "not run" where nothing was. With --row it runs
what that row needs and is not done yet: the data, ICT for the embedder, MLM for
the encoder, and the row's pre-training, in DIR/data, DIR/ict, DIR/mlm and
DIR/<name>; then the zero-shot recall on config.evaluate.questions. With --qa_config
and --dataset it is then fine-tuned on --qa_config.questions.train, in DIR/qa, for
the exact match; rows that share a retriever differ in it alone. What is named in
--config as data holds for both. The paper's figures are NQ dev at full size.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from absl import flags
from absl import logging
import ml_collections
from ml_collections import config_flags
import rich.table

from experiments.engine import command
from experiments.engine import progress
from experiments.open_qa import evaluate as qa_evaluate
from experiments.realm import evaluate as realm_evaluate
from experiments.realm import prepare as realm_prepare
from experiments.realm import task as realm_task
from experiments.realm import zero_shot
from experiments.tables import qa_rows
from experiments.tables import realm_rows
from realm_jax.data import folder as realm_data
from realm_jax.serving import index_folders
from retrieval.questions import question_sets
from retrieval.store import store

FILE = 'zero_shot.json'
_AT = qa_rows.AT  # documents, as in the paper


@dataclasses.dataclass(frozen=True)
class Row:
  """One line of the table.

  Attributes:
    name: as the paper has it.
    exact_match: the paper's, in percent.
    recall: the paper's zero-shot recall@5, in percent.
    system: retriever and encoder.
  """

  name: str
  exact_match: str
  recall: float | None
  system: qa_rows.System


ROWS = {
  'salient': Row('REALM', '38.2', 38.5, qa_rows.System('salient', 'salient')),
  'realm_retriever': Row(
    *('REALM retriever + baseline encoder', '37.4', 38.5),
    qa_rows.System('salient'),
  ),
  'realm_encoder': Row(
    *('Baseline retriever + REALM encoder', '35.3', 13.9),
    qa_rows.System('ict', 'salient'),
  ),
  'ict': Row('Baseline (ORQA: ICT only)', '31.3', 13.9, qa_rows.System('ict')),
  'uniform': Row(
    'Random uniform masks', '32.3', 24.2, qa_rows.System('uniform', 'uniform')
  ),
  'span': Row(
    'Random span masks', '35.3', 26.1, qa_rows.System('span', 'span')
  ),
  'stale': Row(
    '30x stale MIPS', '28.7', 15.1, qa_rows.System('stale', 'stale')
  ),
}
# Not in the paper: where all of them started, and words alone.
_OTHERS = {
  'start': Row('before any training', '', None, qa_rows.System('start')),
  'bm25': Row('BM25', '', None, qa_rows.System('bm25')),
}


def _write_recall(folder, retrievers, blocks, settings) -> None:
  rows = zero_shot.measure(retrievers, blocks, settings)
  path = pathlib.Path(folder) / FILE
  path.parent.mkdir(parents=True, exist_ok=True)
  before = json.loads(path.read_text()) if path.exists() else []
  # What was measured on other questions stays.
  kept = {_column(x): x for x in before} | {_column(x): x for x in rows}
  text = json.dumps(list(kept.values()), indent=1) + '\n'
  store.write_atomically(path, text.encode())


def _column(row: Mapping[str, Any]) -> tuple[str, str, int]:
  """File of questions, rule and number of questions."""
  file = pathlib.Path(row['questions_file']).stem
  return file, row['rule'], row['questions']


def run_row(
  name: str, config: ml_collections.ConfigDict, root: pathlib.Path
) -> None:
  """Runs what the recall of a row needs and is not done yet.

  Args:
    name: of ROWS or of the two others.
    config: of the experiment; its data_dir is set.
    root: where everything goes.
  """
  data = realm_data.DataFolder.of(config, root)
  realm_prepare.run(config, str(root))
  kind = (ROWS | _OTHERS)[name].system.retriever
  folder = str(root / kind)
  if kind == 'bm25':
    retriever = realm_evaluate.bm25_retriever(data)
  else:
    if kind == 'start':
      trained = realm_task.untrained(
        command.changed(config, embedder_from=''), data
      )
    else:
      folder = realm_rows.train(kind, config, root)
      trained = realm_task.load(folder, str(data.root))
    index = trained.open_index(pathlib.Path(folder) / index_folders.INDEX)
    retriever = realm_evaluate.retriever(trained, index)
  _write_recall(folder, {kind: retriever}, data.blocks, config.evaluate)


def recalls(root: pathlib.Path) -> dict[str, dict[tuple[str, str, int], Any]]:
  """Retriever -> (file, rule, number of questions) -> its share of recall@5."""
  kinds = dict.fromkeys(r.system.retriever for r in (ROWS | _OTHERS).values())
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
  """Prints what is there beside the paper's figures.

  Args:
    root: of the workdir.
    sets: whose exact match is shown; () for all that were measured.
    settings: the section evaluate by which `sets` are measured.
  """
  rows, found = ROWS | _OTHERS, recalls(root)
  measured = qa_rows.read([row.system for row in rows.values()], root)
  exact = qa_rows.columns(measured, sets, settings)
  columns = sorted({column for shares in found.values() for column in shares})
  heads = [f'EM {head}' for head in exact.values()]
  heads += [
    f'recall@{_AT} {file}, {rule} ({count:,})' for file, rule, count in columns
  ] or ['ours']
  table = rich.table.Table(
    *('system', 'paper EM', f'paper recall@{_AT}', *heads, 'row'),
    caption=qa_rows.scale(measured) if exact else None,
    caption_justify='left',
  )
  for name, row in rows.items():
    scores = measured.get(row.system, {}).get('sets', {})
    shares = found.get(row.system.retriever, {})
    cells = [_exact_match(scores.get(key)) for key in exact]
    cells += [_cell(shares.get(column)) for column in columns] or [_cell(None)]
    paper = '' if row.recall is None else f'{row.recall:.1f}'
    table.add_row(row.name, row.exact_match, paper, *cells, name)
  progress.console().print(table)


def _cell(share: Mapping[str, float] | None) -> str:
  if share is None:
    return 'not run'
  mean, low, high = (100 * share[k] for k in ('mean', 'low', 'high'))
  return f'{mean:.1f} [{low:.1f}, {high:.1f}]'


def _exact_match(measures: Mapping[str, Any] | None) -> str:
  if measures is None:
    return 'not run'
  return qa_evaluate.cell(measures['official_exact_match'])


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Runs the rows asked for, then prints the table."""
  root, values = pathlib.Path(workdir), flags.FLAGS
  config = command.changed(
    config,
    data_dir=config.data_dir or str(root / 'data'),
    evaluate={'ks': tuple(sorted({*config.evaluate.ks, _AT}))},
  )
  if bool(values.dataset) != bool(values.qa_config):
    raise ValueError('--qa_config and --dataset go together: one is missing.')
  for name in values.row:
    if name not in (*ROWS, *_OTHERS):
      raise ValueError(f'--row={name}: expected one of {[*ROWS, *_OTHERS]}.')
    if not config.evaluate.questions and not values.dataset:
      raise ValueError('evaluate.questions is empty: recall needs questions.')
  sets, qa_config, settings = [], None, None
  if values.qa_config:
    qa_config = qa_rows.share_data(values.qa_config, config, root)
    settings = qa_config.evaluate
    sets = qa_evaluate.load_sets(values.dataset, qa_config)
  for name in values.row:
    logging.info('Row %s.', name)
    if config.evaluate.questions:
      run_row(name, config, root)
    if qa_config is not None:
      system = (ROWS | _OTHERS)[name].system
      qa_rows.run(system, qa_config, config, sets, root)
  print_table(root, sets, settings)


def define_flags() -> None:
  """--row, --qa_config and --dataset."""
  flags.DEFINE_multi_string('row', [], f'Row to run: {[*ROWS, *_OTHERS]}.')
  config_flags.DEFINE_config_file(
    'qa_config',
    None,
    'Configuration of the fine-tuning, file.py[:arg]; none: recall alone.',
    lock_config=True,
  )
  flags.DEFINE_multi_string(
    'dataset', [], 'Question set of the exact match, NAME:SPLIT=PATH,PATH.'
  )


if __name__ == '__main__':
  command.main(run, define_flags, computes=True)
