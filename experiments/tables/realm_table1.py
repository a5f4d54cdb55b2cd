# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Table 1 of REALM: systems that answer open questions, the papers' and ours.

  python -m experiments.tables.realm_table1 --config=configs/open_qa_small.py \
    --config.corpus.path=simplewiki.jsonl.xz \
    --config.questions.train="('webquestions:train=trainmodel.json,val.json',)" \
    --workdir=DIR --dataset=webquestions:test=test.json --row=bm25 --row=realm

Without --row it prints the table, "not run" where nothing was. With --row it runs
what that row needs and is not done yet: data, pre-training by --realm_config (the
folders of experiments.tables.realm_table2, which may be given the same workdir; --config
names the data of both) and fine-tuning in DIR/qa. Ours:

  bm25    blocks found by words
  orqa    ICT alone
  realm   REALM on salient spans, retriever and encoder
  dpr     the retriever's checkpoint, trained by contrast on the same questions
  start   the retriever's checkpoint as it is
  random  the closed-book baseline: a reader of blocks that have nothing to do with the
          question. With the null document alone its exact match would be 0 by
          construction, for spans are read, and the null document holds none.

All but realm read with the baseline encoder (config.warm_start.mlm of
--realm_config). Writes DIR/table1.md and table1.json.
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
from experiments.tables import qa_rows
from retrieval.store import store

NAME = 'table1'
REALM_CONFIG = (
  pathlib.Path(__file__).parents[2] / 'configs' / 'realm_pretrain_small.py'
)
_SETS = ('NQ', 'WQ', 'CT')
_SHORT = {'nq_open': 'NQ', 'webquestions': 'WQ', 'curatedtrec': 'CT'}
_MEASURES = 'EM / F1 / top 5'
SYSTEMS = {
  'bm25': qa_rows.System('bm25'),
  'orqa': qa_rows.System('ict'),
  'realm': qa_rows.System('salient', 'salient'),
  'dpr': qa_rows.System('dpr'),
  'start': qa_rows.System('start'),
  'random': qa_rows.System('random'),
}


@dataclasses.dataclass(frozen=True)
class Row:
  """A line of the table.

  Attributes:
    system: as the paper has it, or ours.
    pretraining: of it.
    exact_match: the paper's on the test questions of NQ, WQ and CT, in percent.
    parameters: the paper's.
    ours: name in SYSTEMS; '' for none.
  """

  system: str
  pretraining: str
  exact_match: tuple[str, str, str] = ('', '', '')
  parameters: str = ''
  ours: str = ''


ROWS = (
  Row('BERT-Baseline (BM25)', 'BERT', ('26.5', '17.7', '21.3'), '110m', 'bm25'),
  Row('T5 (base)', 'T5', ('27.0', '29.1', '-'), '223m'),
  Row('T5 (large)', 'T5', ('29.8', '32.2', '-'), '738m'),
  Row('T5 (11b)', 'T5', ('34.5', '37.4', '-'), '11318m'),
  Row('DrQA', '-', ('-', '20.7', '25.7'), '34m'),
  Row('HardEM', 'BERT', ('28.1', '-', '-'), '110m'),
  Row('GraphRetriever', 'BERT', ('31.8', '31.6', '-'), '110m'),
  Row('PathRetriever', 'MLM', ('32.6', '-', '-'), '110m'),
  Row('ORQA', 'ICT + BERT', ('33.3', '36.4', '30.1'), '330m', 'orqa'),
  Row('REALM, X Wikipedia', 'REALM', ('39.2', '40.2', '46.8'), '330m', 'realm'),
  Row('REALM, X CC-News', 'REALM', ('40.4', '40.7', '42.9'), '330m'),
  # Karpukhin et al. 2020, Table 4, single; its reader is another.
  Row('DPR (its own paper)', 'BERT', ('41.5', '34.6', '25.9'), '', 'dpr'),
  Row('retriever as it starts', '-', ours='start'),
  Row('random blocks (closed book)', '-', ours='random'),
)


def cell(measures: Mapping[str, Any] | None) -> list[str]:
  """Exact match by the set's rule, F1 and top-5 match of a set, in percent."""
  if measures is None:
    return ['not run']
  top = next((x for name, x in measures.items() if _is_top(name)), None)
  return [
    qa_evaluate.cell(measures['official_exact_match']),
    _percent(measures.get('f1')),
    _percent(top),
  ]


def _is_top(name: str) -> bool:
  return name.startswith(f'top_{qa_rows.AT}_')


def _percent(share: Mapping[str, float] | None) -> str:
  return '-' if share is None else f'{100 * share["mean"]:.1f}'


def lines(
  found: Mapping[qa_rows.System, Mapping[str, Any]],
  columns: Mapping[str, str],
) -> list[tuple[Row, list[list[str]]]]:
  """Each row with its cells, of which those without a system of ours are empty."""
  rows = []
  for row in ROWS:
    system = SYSTEMS.get(row.ours)
    sets = found.get(system, {}).get('sets', {})
    cells = [cell(sets.get(key)) for key in columns] or [['not run']]
    rows.append((row, cells if system else [['']] * len(cells)))
  return rows


def markdown(
  rows: Sequence[tuple[Row, list[list[str]]]],
  heads: Sequence[str],
  caption: str,
) -> str:
  """The table in Markdown."""
  papers = [f'paper {name}' for name in _SETS]
  top = ['system', 'pre-training', 'parameters', *papers, 'row']
  top += [f'ours, {head}: {_MEASURES}' for head in heads]
  body = [
    [row.system, row.pretraining, row.parameters, *row.exact_match, row.ours]
    + [' / '.join(parts) for parts in cells]
    for row, cells in rows
  ]
  table = [top, ['---'] * len(top), *body]
  text = ''.join('| ' + ' | '.join(line) + ' |\n' for line in table)
  return f'{text}\n{caption}\n'


def print_table(
  rows: Sequence[tuple[Row, list[list[str]]]],
  heads: Sequence[str],
  caption: str,
) -> None:
  """Prints the table, narrow: F1 and top-5 match stand below exact match."""
  table = rich.table.Table(
    *('system', *_SETS, 'row'),
    *(_short(head) for head in heads),
    title=f'EM of the papers on test; beside it ours, {_MEASURES}',
    caption=caption,
    caption_justify='left',
  )
  for row, cells in rows:
    table.add_row(
      *(row.system, *row.exact_match, row.ours),
      *('\n'.join(parts) for parts in cells),
    )
  progress.console().print(table)


def _short(head: str) -> str:
  """A heading as narrow as the figures below it."""
  name, _, count = head.partition(' (')
  dataset, _, split = name.partition(':')
  split = f'{_SHORT.get(dataset, dataset)} {split}'
  return '\n'.join(x for x in (split.strip(), count.rstrip(')')) if x)


def report(
  root: pathlib.Path,
  found: Mapping[qa_rows.System, Mapping[str, Any]],
  columns: Mapping[str, str],
) -> None:
  """Prints the table and writes it as Markdown and JSON."""
  rows, caption = lines(found, columns), qa_rows.scale(found)
  heads = list(columns.values()) or ['ours']
  records = [
    dataclasses.asdict(row)
    | {
      'exact_match': dict(zip(_SETS, row.exact_match, strict=True)),
      'measures': found.get(SYSTEMS.get(row.ours), {}),
    }
    for row, _ in rows
  ]
  text = json.dumps({'caption': caption, 'rows': records}, indent=1) + '\n'
  root.mkdir(parents=True, exist_ok=True)
  store.write_atomically(root / f'{NAME}.json', text.encode())
  text = markdown(rows, heads, caption)
  store.write_atomically(root / f'{NAME}.md', text.encode())
  print_table(rows, heads, caption)


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Runs the rows asked for, then prints the table."""
  root, values = pathlib.Path(workdir), flags.FLAGS
  for name in values.row:
    if name not in SYSTEMS:
      raise ValueError(f'--row={name}: expected one of {list(SYSTEMS)}.')
    if not values.dataset:
      raise ValueError('--row needs a --dataset, NAME:SPLIT=PATH, to measure.')
  sets = qa_evaluate.load_sets(values.dataset, config)
  config = qa_rows.share_data(config, config, root)
  realm_config = qa_rows.share_data(values.realm_config, config, root)
  for name in values.row:
    logging.info('Row %s.', name)
    qa_rows.run(SYSTEMS[name], config, realm_config, sets, root)
  found = qa_rows.read(list(SYSTEMS.values()), root)
  report(root, found, qa_rows.columns(found, sets, config.evaluate))


def define_flags() -> None:
  """--row, --dataset and --realm_config."""
  flags.DEFINE_multi_string('row', [], f'Row to run: {list(SYSTEMS)}.')
  flags.DEFINE_multi_string(
    'dataset', [], 'Question set to measure on, NAME:SPLIT=PATH,PATH.'
  )
  config_flags.DEFINE_config_file(
    'realm_config',
    str(REALM_CONFIG),
    'Configuration of the pre-trainings, file.py[:arg].',
    lock_config=True,
  )


if __name__ == '__main__':
  command.main(run, define_flags, computes=True)
