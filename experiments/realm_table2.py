# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Table 2 of REALM: what its retriever owes to salient spans and a fresh index.

  python -m experiments.realm_table2 --config=configs/<name>.py --workdir=DIR
  python -m experiments.realm_table2 ... --row=salient

Without --row it prints the table, "not run" where nothing was. With --row it runs
what that row needs and is not done yet: the data, ICT for the embedder, MLM for
the encoder, and the row's pre-training, in DIR/data, DIR/ict, DIR/mlm and
DIR/<row>; then the zero-shot recall on config.evaluate.questions. The paper's
figures are NQ dev at full size.
"""

import dataclasses
import json
import pathlib
from typing import Any

from absl import flags
from absl import logging
import ml_collections
import rich.table

from experiments import command
from experiments import progress
from experiments import realm_data
from experiments import realm_evaluate
from experiments import realm_prepare
from experiments import realm_task
from experiments import realm_train
from experiments import warm_start
from experiments import zero_shot
from retrieval import store

FILE = 'zero_shot.json'
_AT = 5  # documents, as in the paper


@dataclasses.dataclass(frozen=True)
class Row:
  """One retriever of the table.

  Attributes:
    name: as the paper has it.
    exact_match: the paper's, in percent, of the systems with this retriever.
    recall: the paper's zero-shot recall@5, in percent.
    overrides: fields of the config that make the row.
  """

  name: str
  exact_match: str
  recall: float | None
  overrides: dict[str, Any] | None


# "REALM retriever + baseline encoder" and its converse share retrievers with
# others, so five are distinct.
ROWS = {
  'salient': Row('REALM', '38.2', 38.5, {'masker': 'salient'}),
  'uniform': Row('Random uniform masks', '32.3', 24.2, {'masker': 'uniform'}),
  'span': Row('Random span masks', '35.3', 26.1, {'masker': 'span'}),
  'stale': Row('30x stale MIPS', '28.7', 15.1, {'refresh': {'staleness': 30}}),
  'ict': Row('Baseline (ORQA: ICT only)', '31.3', 13.9, None),
}
# Not in the paper: where all of them started, and words alone.
_OTHERS = {
  'start': Row('before any training', '', None, None),
  'bm25': Row('BM25', '', None, None),
}


def _write_recall(folder, retrievers, blocks, settings) -> None:
  rows = zero_shot.measure(retrievers, blocks, settings)
  pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
  text = json.dumps(rows, indent=1) + '\n'
  store.write_atomically(pathlib.Path(folder) / FILE, text.encode())


def run_row(
  name: str, config: ml_collections.ConfigDict, root: pathlib.Path
) -> None:
  """Runs what a row needs and is not done yet.

  Args:
    name: of ROWS or of the two others.
    config: of the experiment; its data_dir is set.
    root: where everything goes.
  """
  data = realm_data.DataFolder.of(config, root)
  realm_prepare.run(config, str(root))
  folder = str(root / name)
  if name == 'bm25':
    retriever = realm_evaluate.bm25_retriever(data)
  else:
    if name == 'start':
      trained = realm_task.untrained(
        command.changed(config, embedder_from=''), data
      )
    elif name == 'ict':
      trained = realm_task.load(
        warm_start.train(config, 'ict', root), str(data.root)
      )
    else:
      starts = {
        f'{part}_from': config[f'{part}_from']
        or warm_start.train(config, start, root)
        for part, start in (('embedder', 'ict'), ('encoder', 'mlm'))
      }
      wanted = command.changed(config, **ROWS[name].overrides, **starts)
      if not warm_start.is_done(folder, wanted.num_steps):
        realm_train.run(wanted, folder)
      trained = realm_task.load(folder, str(data.root))
    index = trained.open_index(pathlib.Path(folder) / realm_task.INDEX)
    retriever = realm_evaluate.retriever(trained, index)
  _write_recall(folder, {name: retriever}, data.blocks, config.evaluate)


def print_table(root: pathlib.Path) -> None:
  """Prints what is there beside the paper's figures."""
  found = {
    name: json.loads((root / name / FILE).read_text())
    for name in (*ROWS, *_OTHERS)
    if (root / name / FILE).exists()
  }
  columns = sorted(
    {
      (pathlib.Path(row['questions_file']).stem, row['rule'])
      for rows in found.values()
      for row in rows
    }
  )
  heads = [f'{file}, {rule}' for file, rule in columns] or ['ours']
  table = rich.table.Table(
    'retriever', 'paper EM', f'paper recall@{_AT}', *heads, 'row'
  )
  for name, row in (ROWS | _OTHERS).items():
    shares = {
      (pathlib.Path(x['questions_file']).stem, x['rule']): x.get(
        f'recall@{_AT}'
      )
      for x in found.get(name, [])
    }
    cells = [_cell(shares.get(column)) for column in columns] or [_cell(None)]
    paper = '' if row.recall is None else f'{row.recall:.1f}'
    table.add_row(row.name, row.exact_match, paper, *cells, name)
  progress.console().print(table)


def _cell(share: dict[str, float] | None) -> str:
  if share is None:
    return 'not run'
  mean, low, high = (100 * share[k] for k in ('mean', 'low', 'high'))
  return f'{mean:.1f} [{low:.1f}, {high:.1f}]'


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Runs the rows asked for, then prints the table."""
  root = pathlib.Path(workdir)
  config = command.changed(
    config,
    data_dir=config.data_dir or str(root / 'data'),
    evaluate={'ks': tuple(sorted({*config.evaluate.ks, _AT}))},
  )
  for name in flags.FLAGS.row:
    if name not in (*ROWS, *_OTHERS):
      raise ValueError(f'--row={name}: expected one of {[*ROWS, *_OTHERS]}.')
    if not config.evaluate.questions:
      raise ValueError('evaluate.questions is empty: recall needs questions.')
  for name in flags.FLAGS.row:
    logging.info('Row %s.', name)
    run_row(name, config, root)
  print_table(root)


def define_flags() -> None:
  """--row."""
  flags.DEFINE_multi_string('row', [], f'Row to run: {[*ROWS, *_OTHERS]}.')


if __name__ == '__main__':
  command.main(run, define_flags, computes=True)
