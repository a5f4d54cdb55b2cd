# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare the bits per byte of several runs, seeds, sources or data.

  python -m experiments.compare --config=configs/<name>.py --workdir=DIR \
    --row=dense=RUN --row=dense=SECOND_SEED --row=bm25=OTHER_RUN,source=bm25 \
    --row=taught=RUN,data=OTHER_DATA --row=off=RUN,retrieval=off --row=baseline=BASELINE

A row is a name and a training run, a RETRO or a baseline; runs of one name are seeds of
one row, whose documents count with the mean of their nats. By default a run is read as
it was trained, with the first of --config.evaluate.num_neighbors. Options of a run:

  source=NAME     neighbors of another source (see experiments.prepare)
  data=DIR        another data folder of the same documents
  k=N             number of neighbors
  rank=N          the neighbor of one rank alone, from 1
  part=PART       neighbor (N), continuation (F) or full (both)
  share=S         neighbors in a random part of the datastore, see experiments.sweep
  retrieval=MODE  on, off, shuffled or oracle; see experiments.evaluate

Prints a table with intervals of a paired bootstrap over documents against the first row,
and the difference of each seed. Writes DIR/compare.json, where each row has its
differences from all others (`minus`), and compare.npz with the nats of each document,
[seeds, documents] a row, and their `bytes`, as experiments.tables.claims reads them.
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools
import os
import pathlib
from typing import Annotated, Any, Literal

from absl import flags
import numpy as np

from experiments.engine import named_runs, progress, reports, stages
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retrieval import settings
from retrieval.text import chunks as chunks_lib
from retro_jax.data import pipeline
from retro_jax.evaluation import evaluate as evaluate_lib
from retro_jax.trained import loading

FILE = 'compare.json'
Compare = retro_evaluate.Evaluate
Seeds = list[evaluate_lib.Evaluation]  # of one row


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a row, and how it is read; options that are given are checked."""

  workdir: str = ''
  source: str = ''  # '': as trained
  data: str = ''  # '': --config.data_dir, or that of the training
  k: settings.Size = 0  # 0: the first of config.evaluate.num_neighbors
  rank: settings.Size = 0  # of the one neighbor that is read; 0: the first k
  part: Literal[*chunks_lib.PARTS] = ''  # '': as trained
  # of the datastore; 0: the neighbors of the data folder
  share: Annotated[float, settings.Range(0, 1, above=True)] = 0.0
  retrieval: Literal[*evaluate_lib.RETRIEVALS] = 'on'


def parse(values: Sequence[str]) -> dict[str, list[Run]]:
  """Return the runs of each name; ValueError for a text of another form."""
  found = named_runs.parse(values, settings.hints(Run))
  rows = {name: [Run(**run) for run in runs] for name, runs in found.items()}
  for run in itertools.chain(*rows.values()):
    reads = run.retrieval in ('on', 'shuffled')
    if (run.part or run.share or run.rank) and not reads:
      raise ValueError(
        '--row: part, share and rank are of retrieved neighbors, but '
        f'{run} reads none.'
      )
    if run.k and run.rank:
      raise ValueError(f'--row: expected k or rank, found both in {run}.')
  return rows


def _load(
  config: config_lib.Config, evaluate: Compare, run: Run
) -> loading.TrainedRetro:
  source = run.source or evaluate.source
  evaluate = dataclasses.replace(evaluate, workdir=run.workdir, source=source)
  return retro_evaluate.load(config, evaluate, run.workdir, data_dir=run.data)


def reader_of(
  trained: loading.TrainedRetro, evaluate: Compare, run: Run
) -> tuple[pipeline.ChunkReader, str]:
  """Return what a run reads of the whole datastore, and the kind of retrieval."""
  baseline = not trained.model.config.cca_layers
  if baseline and run != Run(run.workdir, data=run.data):
    raise ValueError(f'{run.workdir}: a baseline reads no neighbors: {run}.')
  retrieval = 'off' if baseline else run.retrieval
  wanted = run.rank or run.k or evaluate.k
  k = {'off': 0, 'oracle': 1}.get(retrieval, wanted)
  modes = [(run.workdir, retrieval, k)]
  reader = retro_evaluate.open_readers(trained, evaluate, modes)[k]
  if run.rank:
    one = {'num_neighbors': 1, 'skipped_neighbors': run.rank - 1}
    reader = dataclasses.replace(reader, **one)
  if run.part:
    reader = dataclasses.replace(reader, neighbor_part=run.part)
  return reader, retrieval


def measure(
  score: Callable[[pipeline.Row], Any],
  trained: loading.TrainedRetro,
  evaluate: Compare,
  run: Run,
  name: str,
  root: str | os.PathLike,
  seed: int,
) -> evaluate_lib.Evaluation:
  """Evaluate one run; `root` keeps neighbors in parts of the datastore."""
  reader, retrieval = reader_of(trained, evaluate, run)
  if run.share:
    k = reader.skipped_neighbors + reader.num_neighbors
    what = f'neighbors in {100 * run.share:g} %'
    with progress.bar(what, 'chunks') as update:
      path = trained.data.datastore.neighbors_in_part(
        root, evaluate.split, run.share, k, seed, update
      )
    reader = dataclasses.replace(reader, neighbors=path)
  return retro_evaluate.measure(
    score, reader, trained, evaluate, retrieval, name, seed
  )


def _measure(
  config: config_lib.Config, workdir: str, evaluate: Compare, run: Run
) -> evaluate_lib.Evaluation:
  trained = _load(config, evaluate, run)
  with retro_evaluate.scorer(trained, config, evaluate.batch_size) as score:
    where = run.workdir, workdir, config.seed
    return measure(score, trained, evaluate, run, *where)


def _mean(seeds: Seeds) -> evaluate_lib.Evaluation:
  """The documents with the mean of the seeds' nats."""
  nats = np.mean([x.nats for x in seeds], axis=0)
  return dataclasses.replace(seeds[0], nats=nats)


def _minus(name: str, row: Seeds, other_name: str, other: Seeds) -> dict:
  """Bits per byte of a row minus those of another: interval, and each seed."""
  try:
    interval = evaluate_lib.compare(_mean(row), _mean(other))
  except ValueError as error:
    raise ValueError(f'rows {name} and {other_name}: {error}') from None
  pairs = named_runs.pairs(name, row, other_name, other)
  each = [a.bits_per_byte - b.bits_per_byte for a, b in pairs]
  return {**dataclasses.asdict(interval), 'of_seeds': each}


def compare(
  config: config_lib.Config,
  workdir: str,
  evaluate: Compare,
  values: Sequence[str] | None = None,
) -> dict[str, Any]:
  """Print the table of --row, write the file and return its content."""
  stages.check_alone()
  given = parse(values or flags.FLAGS.row)
  for one in itertools.chain(*given.values()):
    # A row that does not fit ends this first.
    reader_of(_load(config, evaluate, one), evaluate, one)
  rows = {
    name: [_measure(config, workdir, evaluate, run) for run in runs]
    for name, runs in given.items()
  }
  minus: dict[str, dict[str, Any]] = {name: {} for name in rows}
  for one, two in itertools.combinations(rows, 2):
    minus[two][one] = found = _minus(two, rows[two], one, rows[one])
    minus[one][two] = named_runs.mirrored(found)
  content = [
    {
      'name': name,
      'runs': [dataclasses.asdict(run) for run in given[name]],
      **_mean(seeds).summary(),
      'bits_per_byte_of_seeds': [x.bits_per_byte for x in seeds],
      'minus': minus[name],
    }
    for name, seeds in rows.items()
  ]
  _print(content)
  found = {'rows': content, 'settings': dataclasses.asdict(evaluate)}
  path = reports.write_json(pathlib.Path(workdir) / FILE, found)
  nats = {name: [x.nats for x in row] for name, row in rows.items()}
  size = rows[content[0]['name']][0].num_bytes
  reports.write_arrays(path.with_suffix('.npz'), nats | {'bytes': size})
  return found


def _print(content: Sequence[dict[str, Any]]) -> None:
  one, lines = content[0], []
  for row in content:
    cells = [row['name'], f'{row["bits_per_byte"]:.4f}', '', '', '']
    if x := row['minus'].get(one['name']):
      cells[2:4] = f'{x["mean"]:+.4f}', f'[{x["low"]:+.4f}, {x["high"]:+.4f}]'
      cells[4] = ' '.join(f'{each:+.4f}' for each in x['of_seeds'])
    lines.append(cells)
  reports.print_table(
    ('row', 'bits/byte', 'minus first', 'interval', 'of each seed'),
    lines,
    title=f'{one["documents"]:,} held-out documents, {one["bytes"]:,} bytes',
    caption=f'Minus first: bits per byte less those of {one["name"]!r}; interval: '
    '95 % of a paired bootstrap over documents, of the mean over seeds.',
  )
