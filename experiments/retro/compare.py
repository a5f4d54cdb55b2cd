# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare the bits per byte of several runs, seeds, sources or data on the same documents.

  python -m experiments.retro.compare --config=configs/<name>.py --workdir=DIR \
    --row=dense=RUN --row=dense=SECOND_SEED --row=bm25=OTHER_RUN,source=bm25 \
    --row=taught=RUN,data=OTHER_DATA --row=off=RUN,retrieval=off --row=baseline=BASELINE

A row is a name and a training run, a RETRO or a baseline; runs of one name are seeds of
one row, whose documents count with the mean of their nats. By default a run is read as
it was trained, with the first of --config.evaluate.num_neighbors. Options of a run:

  source=NAME     neighbors of another source (see experiments.retro.prepare)
  data=DIR        another data folder of the same documents
  k=N             number of neighbors
  retrieval=MODE  on, off, shuffled or oracle; see experiments.retro.evaluate

Prints a table with intervals of a paired bootstrap over documents against the first row,
and the difference of each seed. Writes DIR/compare.json.
"""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from absl import flags
import ml_collections
import numpy as np

from experiments.engine import command, reports
from experiments.retro import (
  evaluate as retro_evaluate,
  settings as settings_lib,
)
from retrieval.questions import bootstrap
from retro_jax.evaluation import evaluate

FILE = 'compare.json'
_MODES = ('on', 'off', 'shuffled', 'oracle')


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a row, and how it is read."""

  workdir: str
  source: str = ''  # '': as trained
  data: str = ''  # '': --config.data_dir, or that of the training
  k: int = 0  # 0: the first of config.evaluate.num_neighbors
  retrieval: str = 'on'


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of the table: the runs of a name."""

  name: str
  seeds: list[evaluate.Evaluation]

  @property
  def mean(self) -> evaluate.Evaluation:
    """The documents with the mean of the seeds' nats."""
    nats = np.mean([x.nats for x in self.seeds], axis=0)
    return dataclasses.replace(self.seeds[0], nats=nats)


def parse(values: Sequence[str]) -> dict[str, list[Run]]:
  """Return the runs of each name in NAME=RUN[,OPTION=VALUE...].

  Raises:
    ValueError: for a text of another form, an unknown option or a missing folder.
  """
  rows: dict[str, list[Run]] = {}
  for value in values:
    name, _, rest = value.partition('=')
    workdir, *given = rest.split(',')
    options = dict(x.partition('=')[::2] for x in given)
    known = {x.name for x in dataclasses.fields(Run)} - {'workdir'}
    k = options.get('k', '1')
    if (
      not name
      or options.keys() - known
      or options.get('retrieval', 'on') not in _MODES
      or not (k.isdecimal() and int(k))
    ):
      raise ValueError(
        f'--row={value}: expected NAME=RUN, and after commas source=NAME, data=DIR, '
        f'k=N (from 1) or retrieval=MODE, one of {_MODES}.'
      )
    for folder in (workdir, options.get('data', '.')):
      if not folder or not pathlib.Path(folder).is_dir():
        raise ValueError(f'--row={value}: {folder!r}: expected a folder.')
    if 'k' in options:
      options['k'] = int(k)
    rows.setdefault(name, []).append(Run(workdir, **options))
  return rows


def measure(
  config: ml_collections.ConfigDict, name: str, run: Run
) -> evaluate.Evaluation:
  """Evaluate one run.

  Raises:
    FileNotFoundError: without a checkpoint, data or the source's neighbors.
    ValueError: for options that do not fit the run.
  """
  config = command.changed(config, data_dir=run.data or config.data_dir)
  config.evaluate.source = run.source or config.evaluate.source
  trained, _ = retro_evaluate.load(config, run.workdir)
  baseline = not trained.model.config.cca_layers
  if baseline and run != Run(run.workdir, data=run.data):
    raise ValueError(f'{run.workdir}: a baseline reads no neighbors: {run}.')
  retrieval = 'off' if baseline else run.retrieval
  k = run.k or retro_evaluate.numbers_of_neighbors(config.evaluate)[0]
  k = {'off': 0, 'oracle': 1}.get(retrieval, k)
  mode = name, retrieval, k
  (found,) = retro_evaluate.evaluate_trained(trained, config, [mode])
  return found.evaluation


def compare(row: Row, first: Row) -> bootstrap.Interval:
  """Bits per byte of a row minus those of the first one.

  Raises:
    ValueError: when they are of different documents.
  """
  try:
    return evaluate.compare(row.mean, first.mean)
  except ValueError as error:
    raise ValueError(f'rows {row.name} and {first.name}: {error}') from None


def _of_each(row: Row, first: Row) -> list[float]:
  """The differences of the seeds, each from the seed of its number."""
  pairs = zip(row.seeds, first.seeds, strict=False)
  return [a.bits_per_byte - b.bits_per_byte for a, b in pairs]


def run(
  config: ml_collections.ConfigDict, workdir: str, values: Sequence[str]
) -> dict[str, Any]:
  """Print the table, write the file and return its content.

  Raises:
    ValueError: for rows that do not fit.
  """
  given = parse(values)
  rows = [
    Row(name, [measure(config, name, run) for run in runs])
    for name, runs in given.items()
  ]
  first, content, lines = rows[0], [], []
  for row in rows:
    less = None if row is first else compare(row, first)
    each = [] if row is first else _of_each(row, first)
    content.append(
      {
        'name': row.name,
        'runs': [dataclasses.asdict(run) for run in given[row.name]],
        **row.mean.summary(),
        'bits_per_byte_of_seeds': [x.bits_per_byte for x in row.seeds],
        'minus_first': less and dataclasses.asdict(less),
        'minus_first_of_seeds': each,
      }
    )
    cells = retro_evaluate.cells(row.mean, less)[:3]
    lines.append((row.name, *cells, ' '.join(f'{x:+.4f}' for x in each)))
  one = first.mean.summary()
  reports.print_table(
    ('row', 'bits/byte', 'minus first', 'interval', 'of each seed'),
    lines,
    title=f'{one["documents"]:,} held-out documents, {one["bytes"]:,} bytes',
    caption=f'Minus first: bits per byte less those of {first.name!r}; '
    'interval: 95 % of a paired bootstrap over documents, of the mean over seeds.',
  )
  found = {'rows': content, 'settings': json.loads(config.evaluate.to_json())}
  reports.write_json(pathlib.Path(workdir) / FILE, found)
  return found


def _define_flags() -> None:
  flags.DEFINE_multi_string('row', None, 'NAME=RUN[,OPTION=VALUE...].')
  flags.mark_flag_as_required('row')


if __name__ == '__main__':
  command.main(
    lambda config, workdir: run(config, workdir, flags.FLAGS.row) and None,
    settings_lib.Settings,
    _define_flags,
    writes=FILE,
  )
