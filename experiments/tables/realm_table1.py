# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Run rows of REALM's Table 1 and print it: answers to open questions.

  python -m experiments.tables.realm_table1 --config=configs/open_qa_small.py \
    --config.corpus.path=simplewiki.jsonl.xz \
    --config.questions.train="('webquestions:train=trainmodel.json,val.json',)" \
    --workdir=DIR --dataset=webquestions:test=test.json --row=bm25 --row=realm

Without --row the command prints the table, with "not run" for each figure that
was not measured. With --row it first runs the unfinished parts of that row: the
data, pre-training by --realm_config and fine-tuning in DIR/qa. --config names
the data of both. experiments.tables.realm_table2 can share the workdir. The
rows of ours:

  bm25    blocks found by words
  drqa    blocks found by DrQA's TF-IDF, read by our reader
  orqa    ICT alone
  realm   REALM on salient spans, retriever and encoder
  dpr     the retriever's checkpoint, trained by contrast on the same questions
  start   the retriever's checkpoint, without training
  random  the closed-book baseline: a reader of blocks that are unrelated to the
          question. Reading the null document alone would give exact match 0 by
          construction, because answers are spans and the null document has
          none.

All rows except realm read with the baseline encoder (config.warm_start.mlm of
--realm_config). The command writes DIR/table1.md and table1.json.

The newest checkpoint is measured. These flags choose the best one by exact match on
the held-out questions of --config.questions.dev, of --config.eval_batches batches:

  --config.best_metric=valid/exact_match --config.best_mode=max \
    --config.evaluate.step=best
"""

from collections.abc import Mapping
import pathlib
from typing import Any

from absl import flags, logging
import ml_collections
from ml_collections import config_flags

from experiments.engine import command, reports
from experiments.open_qa import settings as settings_lib
from experiments.tables import paper_table, realm_systems
from retrieval.questions import question_sets

NAME = 'table1'
REALM_CONFIG = (
  pathlib.Path(__file__).parents[2] / 'configs' / 'realm_pretrain_small.py'
)
TABLE = paper_table.load('realm_1')
SYSTEMS = realm_systems.systems_of(TABLE)
_SETS = tuple(TABLE.columns[2:])
_SHORT = {'nq_open': 'NQ', 'webquestions': 'WQ', 'curatedtrec': 'CT'}
_MEASURES = 'EM / F1 / top 5'
Found = Mapping[realm_systems.System, Mapping[str, Any]]


def _cell(measures: Mapping[str, Any] | None) -> list[str]:
  """Exact match by the set's own rule, F1 and top-5 match, in percent."""
  cells = [realm_systems.exact_match(measures)]
  if measures is not None:
    prefix = f'top_{realm_systems.AT}_'
    top = [x for name, x in measures.items() if name.startswith(prefix)]
    shares = measures.get('f1'), next(iter(top), None)
    cells += [f'{100 * x["mean"]:.1f}' if x else '-' for x in shares]
  return cells


def _cells(
  row: paper_table.PaperRow, found: Found, columns: Mapping[str, str]
) -> list[list[str]]:
  """Cells of one row, each in parts; empty if no system of ours has the row."""
  if not row.run:
    return [['']] * max(len(columns), 1)
  sets = found.get(SYSTEMS[row.run], {}).get('sets', {})
  return [_cell(sets.get(key)) for key in columns] or [_cell(None)]


def _short(head: str) -> str:
  """A heading as narrow as the figures below it."""
  name, _, count = head.partition(' (')
  dataset, _, split = name.partition(':')
  split = f'{_SHORT.get(dataset, dataset)} {split}'
  return '\n'.join(x for x in (split.strip(), count.rstrip(')')) if x)


def _record(row: paper_table.PaperRow, found: Found) -> dict[str, Any]:
  pretraining, parameters, *figures = row.paper
  return {
    'system': row.name,
    'pretraining': pretraining,
    'exact_match': dict(zip(_SETS, figures, strict=True)),
    'parameters': parameters,
    'ours': row.run,
    'measures': found.get(SYSTEMS.get(row.run), {}),
  }


def report(
  root: pathlib.Path, found: Found, columns: Mapping[str, str]
) -> None:
  """Print the table and write it as Markdown and JSON."""
  caption = realm_systems.scale(found)
  heads = list(columns.values()) or ['ours']
  root.mkdir(parents=True, exist_ok=True)
  records = [_record(row, found) for row in TABLE.rows]
  content = {'caption': caption, 'rows': records}
  reports.write_json(root / f'{NAME}.json', content)
  rows = [(row, _cells(row, found, columns)) for row in TABLE.rows]
  paper_table.write_markdown(
    root / f'{NAME}.md',
    ['system', 'pre-training', 'parameters']
    + [f'paper {name}' for name in _SETS]
    + ['row', *(f'ours, {head}: {_MEASURES}' for head in heads)],
    [
      [row.name, *row.paper, row.run, *(' / '.join(parts) for parts in cells)]
      for row, cells in rows
    ],
    caption,
  )
  # On the terminal F1 and top-5 match are below exact match.
  reports.print_table(
    ['system', *_SETS, 'row', *(_short(head) for head in heads)],
    [
      [row.name, *row.paper[2:], row.run, *('\n'.join(x) for x in cells)]
      for row, cells in rows
    ],
    f'EM of the papers on test; beside it ours, {_MEASURES}',
    caption,
    wrap=True,
  )


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Run the rows of --row, then print the table."""
  root, values = pathlib.Path(workdir), flags.FLAGS
  realm_systems.check_rows(values.row, SYSTEMS)
  if values.row and not values.dataset:
    raise ValueError('--row needs a --dataset, NAME:SPLIT=PATH, to measure.')
  sets = question_sets.load_sets(
    values.dataset,
    config.evaluate.max_questions,
    config.questions.allow_other_counts,
  )
  config = realm_systems.share_data(config, config, root)
  realm_config = realm_systems.share_data(values.realm_config, config, root)
  for name in values.row:
    logging.info('Row %s.', name)
    realm_systems.run(SYSTEMS[name], config, realm_config, sets, root)
  found = realm_systems.read(list(SYSTEMS.values()), root)
  report(root, found, realm_systems.columns(found, sets, config.evaluate))


def define_flags() -> None:
  """Define --row, --dataset and --realm_config."""
  realm_systems.define_flags(SYSTEMS)
  config_flags.DEFINE_config_file(
    'realm_config',
    str(REALM_CONFIG),
    'Configuration of the pre-trainings, file.py[:arg].',
    lock_config=True,
  )


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, define_flags, writes=NAME)
