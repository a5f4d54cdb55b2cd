# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure RETRO's bits per byte by how much of the text is in the training data.

  python -m experiments.leakage --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.baseline_workdir=BASELINE

Measures r(C) of every held-out chunk against its
--config.evaluate.leakage.num_neighbors nearest training chunks, and the bits per byte
over the chunks with r(C) <= alpha for RETRO with retrieval on and off and for the
baseline (Borgeaud et al. 2021, section 2.6). A second table has the chunks by the
longest run of tokens that they share with the neighbors that RETRO reads, by the
bounds of --config.evaluate.leakage.runs. Prints the tables and writes leakage.json and
leakage.png into DIR. With retrieval on, k is the first number of
--config.evaluate.num_neighbors.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import pathlib

from absl import logging
import jax
import numpy as np

from experiments.engine import command, pictures, progress, reports
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retro_jax.data import windows
from retro_jax.evaluation import evaluate as evaluate_lib, leakage
from retro_jax.trained import loading

FILE, PICTURE = 'leakage.json', 'leakage.png'


@dataclasses.dataclass(frozen=True)
class Curve:
  """The filtered bits per byte of one model."""

  name: str
  step: int
  points: Sequence[leakage.Point]  # one for each alpha
  # RETRO with retrieval on less this model; () for itself
  minus_on: Sequence[leakage.Point] = ()
  runs: Sequence[leakage.RunPoint] = ()  # by the longest run
  runs_minus_on: Sequence[leakage.RunPoint] = ()


def curves(
  trained: loading.TrainedRetro,
  baseline: loading.TrainedRetro | None,
  config: config_lib.Config,
  evaluate: retro_evaluate.Evaluate,
) -> list[Curve]:
  """Evaluate the models chunk by chunk, and filter by r(C)."""
  settings, data = evaluate.leakage, trained.data
  k = settings.num_neighbors
  compared = leakage.whole_neighbors(
    loading.chunk_reader(trained.config, data, evaluate.split, k)
  )
  models = [trained, baseline] if baseline is not None else [trained]
  # Too few neighbors and lost bytes are errors before any work.
  chunks = compared.stores.chunks
  modes = [retro_evaluate.on_and_off(model, [evaluate.k]) for model in models]
  for model, its in zip(models, modes, strict=True):
    retro_evaluate.open_readers(model, evaluate, its)
  documents = windows.find_documents(chunks, evaluate.max_documents)
  ids, document = windows.chunk_ids(documents)
  data.check_tokenizer()
  num_bytes = leakage.count_bytes(chunks, ids, data.tokenizer)
  by_document = np.bincount(document, num_bytes, len(documents.index))
  wanted = chunks.tokens.num_bytes[documents.index]
  if not np.array_equal(by_document, wanted):
    raise ValueError(
      f'{chunks.tokens.path}: its tokens stand for {int(num_bytes.sum()):,} bytes, '
      f'but its documents have {int(wanted.sum()):,}.'
    )
  rows = []
  for model, its in zip(models, modes, strict=True):
    rows += retro_evaluate.evaluate_trained(
      model, config, evaluate, its, evaluate_lib.score_parts
    )
  with progress.bar('overlaps', 'chunks') as update:
    overlap = leakage.overlaps(compared, ids, update)
  reader = dataclasses.replace(compared, num_neighbors=evaluate.k)
  with progress.bar('runs', 'chunks') as update:
    of_run = leakage.read_runs(reader, ids, document, update)
  nats = [row.evaluation.chunk_nats for row in rows]

  def curves_of(values):
    where = values, num_bytes, document
    return (
      leakage.curve(*where, overlap, settings.alphas),
      leakage.by_run(*where, of_run, (-1, *settings.runs)),
    )

  found = []
  for i, (row, own) in enumerate(zip(rows, nats, strict=True)):
    points, runs = curves_of(own)
    less = curves_of(nats[0] - own) if i else ((), ())
    step = row.fields['step']
    found.append(Curve(row.name, step, points, less[0], runs, less[1]))
  return found


def _print(found: Sequence[Curve]) -> None:
  edges = [point.run for point in found[0].runs]
  runs = ['reads none'] + [
    f'{low}' if high == low + 1 else f'{low} to {high - 1}'
    for low, high in itertools.pairwise(edges[1:])
  ]
  for head, title, names, field in (
    (
      'alpha',
      'Bits per byte over chunks with r(C) <= alpha',
      [f'{100 * point.alpha:g} %' for point in found[0].points],
      ('points', 'minus_on'),
    ),
    (
      'tokens',
      'Bits per byte by the longest run shared with the neighbors read',
      [*runs, f'{edges[-1]} and more'],
      ('runs', 'runs_minus_on'),
    ),
  ):
    points, less = ([getattr(line, x) for line in found] for x in field)
    rows = []
    for i, name in enumerate(names):
      cells = [name, f'{100 * points[0][i].share:.1f} %']
      cells.append(f'{points[0][i].documents:,}')
      cells += [f'{x[i].bits_per_byte:.4f}' for x in points]
      for x in less[1:]:
        interval = f'{x[i].low:+.4f} {x[i].high:+.4f}'
        cells.append(f'{x[i].bits_per_byte:+.4f}\n{interval}')
      rows.append(cells)
    lines = [line.name for line in found]
    reports.print_table(
      (head, 'chunks', 'documents', *lines, *(f'less {x}' for x in lines[1:])),
      rows,
      title=title,
      caption=f'{lines[0]} less the others, with the 95 % interval of a '
      'paired bootstrap over documents.',
    )


def plot(found: Sequence[Curve], path: pathlib.Path) -> None:
  """Draw the curves, the paired differences with intervals, and the chunks left."""

  def series(name, points, color):
    shown = [{'x': 100 * p.alpha, 'y': p.bits_per_byte} for p in points]
    if points is found[color].minus_on:
      ends = ({'low': p.low, 'high': p.high} for p in points)
      shown = [x | y for x, y in zip(shown, ends, strict=True)]
    return {'name': name, 'color': color, 'points': shown}

  on, *others = found
  shares = [{'x': 100 * p.alpha, 'y': 100 * p.share} for p in on.points]
  panels = [
    {
      'y': 'bits per byte',
      'series': [series(x.name, x.points, i) for i, x in enumerate(found)],
    },
    {
      'title': 'paired differences, 95 % intervals',
      'y': 'bits per byte',
      'zero': True,
      'series': [
        series(f'{on.name} minus {x.name}', x.minus_on, i)
        for i, x in enumerate(others, start=1)
      ],
    },
    {'y': 'chunks left, %', 'series': [{'name': '', 'points': shares}]},
  ]
  x = {'x': 'most overlap with training data r(C), %'}
  pictures.draw([x | panel for panel in panels], path)


def run(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Measure, print the tables and write the files."""
  trained = retro_evaluate.load(config, evaluate, workdir)
  baseline = retro_evaluate.load_baseline(config, evaluate, trained.data.root)
  found = curves(trained, baseline, config, evaluate)
  if jax.process_index():
    return
  content = {
    'rows': [dataclasses.asdict(line) for line in found],
    'settings': dataclasses.asdict(evaluate),
  }
  path = reports.write_json(pathlib.Path(workdir) / FILE, content)
  plot(found, pathlib.Path(workdir) / PICTURE)
  _print(found)
  logging.info('The figures are in %s, with %s.', path, PICTURE)


if __name__ == '__main__':
  command.main(
    run,
    config_lib.Config,
    section=retro_evaluate.Evaluate,
    writes=FILE,
  )
