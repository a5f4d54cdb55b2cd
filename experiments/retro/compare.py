# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare the bits per byte of several runs, seeds, sources or data.

  python -m experiments.compare --config=configs/<name>.py --workdir=DIR \
    --row=dense=RUN --row=dense=SECOND_SEED --row=bm25=OTHER_RUN,source=bm25 \
    --row=taught=RUN,data=OTHER_DATA --row=off=RUN,retrieval=off --row=baseline=BASELINE

A row is a name and a training run, a RETRO or a baseline; runs of one name are seeds of
one row, whose documents count with the mean of their nats. By default a run is read as
it was trained, with the first of --config.evaluate.num_neighbors. Options of a run:

  data=DIR  another data folder of the same documents

and those of --config.evaluate.rows: source, k, rank, part, share and retrieval; see
experiments/retro/evaluate.py.

Prints a table with intervals of a paired bootstrap over documents against the first row,
and the difference of each seed. Writes DIR/compare.json, where each row has its
differences from all others (`minus`), and compare.npz with the nats of each document,
[seeds, documents] a row, and their `bytes`, as experiments.tables.claims reads them.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from absl import flags
import numpy as np

from experiments.engine import evaluations, reports, stages
from experiments.retro import (
  config as config_lib,
  evaluate as retro_evaluate,
  rows as rows_lib,
)
from retrieval import settings
from retro_jax.evaluation import evaluate as evaluate_lib
from retro_jax.trained import loading

FILE = 'compare.json'
Compare = retro_evaluate.Evaluate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(retro_evaluate.Reading):
  """One run of a row, and how it is read; options that are named are checked."""

  workdir: str = ''
  data: str = ''  # '': --config.data_dir, or that of the training


def _load(
  config: config_lib.Config, evaluate: Compare, run: Run
) -> tuple[loading.TrainedRetro, retro_evaluate.Reading]:
  """Load a run, and say how it is read; ValueError for options that do not fit."""
  source = run.source or evaluate.source
  evaluate = dataclasses.replace(evaluate, workdir=run.workdir, source=source)
  trained = retro_evaluate.load(
    config, evaluate, run.workdir, data_dir=run.data
  )
  if not trained.model.config.cca_layers:
    if run != Run(workdir=run.workdir, data=run.data):
      raise ValueError(f'{run.workdir}: a baseline reads no neighbors: {run}.')
    run = dataclasses.replace(run, retrieval='off')
  retro_evaluate.open_reader(trained, evaluate, run)
  return trained, run


def compare(
  config: config_lib.Config,
  workdir: str,
  evaluate: Compare,
  texts: Sequence[str] | None = None,
) -> dict[str, Any]:
  """Print the table of --row, write the files and return their content."""
  stages.check_alone()
  parsed = evaluations.parse_rows(texts or flags.FLAGS.row, settings.hints(Run))
  runs = {name: [Run(**run) for run in x] for name, x in parsed.items()}
  for run in itertools.chain(*runs.values()):
    _load(config, evaluate, run)  # before any work

  def measure(run: Run) -> evaluate_lib.Evaluation:
    trained, reading = _load(config, evaluate, run)
    [result] = retro_evaluate.evaluate_trained(
      trained, config, evaluate, {run.workdir: reading}, root=workdir
    ).values()
    return result

  rows = []
  for name, seeds in runs.items():
    results = [measure(run) for run in seeds]
    nats = np.stack([x.nats for x in results])
    mean = dataclasses.replace(results[0], nats=nats.mean(0))
    facts = {
      'runs': [dataclasses.asdict(run) for run in seeds],
      'bits_per_byte_of_seeds': [x.bits_per_byte for x in results],
    }
    row = rows_lib.of(name, mean, **facts)
    rows.append(dataclasses.replace(row, values={'': nats}))
  minus = evaluations.differences(rows)
  for row in rows:
    row.facts['minus'] = {k: x[''] for k, x in minus[row.name].items()}
  _print(rows)
  content = {'settings': dataclasses.asdict(evaluate)}
  evaluations.write(pathlib.Path(workdir) / FILE, rows, **content)
  return {'rows': [{'name': x.name, **x.facts} for x in rows], **content}


def _print(rows: Sequence[evaluations.Row]) -> None:
  first, lines = rows[0], []
  for row in rows:
    cells = [row.name, f'{row.facts["bits_per_byte"]:.4f}', '', '', '']
    if x := row.facts['minus'].get(first.name):
      cells[2:4] = f'{x["mean"]:+.4f}', reports.ends(x, '+.4f')
      cells[4] = ' '.join(f'{each:+.4f}' for each in x['of_seeds'])
    lines.append(cells)
  documents, size = first.facts['documents'], first.facts['bytes']
  reports.print_table(
    ('row', 'bits/byte', 'minus first', 'interval', 'of each seed'),
    lines,
    title=f'{documents:,} held-out documents, {size:,} bytes',
    caption=f'Minus first: bits per byte less those of {first.name!r}; interval: '
    '95 % of a paired bootstrap over documents, of the mean over seeds.',
  )
