# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw the learning curves of training runs and print them as a table.

  python -m experiments.tables.plot_curves --run=retro=runs/simplewiki/retro \
    --run=baseline=runs/simplewiki/baseline --output=curves.png

The command reads each run's metrics.jsonl. Measures of training are a line,
measures of validation are dots. --metric, which may be given several times,
names other metrics than the loss, such as retrieval_utility. Beside the picture
a JSON file holds its numbers; experiments.tables.claims reads such files.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any

from absl import flags
import numpy as np

from experiments.engine import command, metric_writer, reports


@dataclasses.dataclass(frozen=True)
class Curves:
  """A metric of one run."""

  name: str  # name of the run
  metric: str  # name of the metric
  # (step, value) of training, by rising step
  train: Sequence[tuple[int, float]]
  # (step, value) of validation, by rising step; may be empty
  valid: Sequence[tuple[int, float]]


def read(
  name: str, workdir: str | pathlib.Path, metric: str = 'loss'
) -> Curves:
  """Read a metric of a run.

  Raises:
    ValueError: if the run has no metrics file, or the file has no such metric.
  """
  path = pathlib.Path(workdir) / metric_writer.FILE
  if not path.is_file():
    raise ValueError(f'{path}: not found; expected a training run there.')
  train, valid = [], []
  rows = metric_writer.read(path)
  for row in rows:
    for key, curve in ((metric, train), (f'valid/{metric}', valid)):
      if row.get(key) is not None:
        curve.append((row['step'], row[key]))
  if rows and not train and not valid:
    found = {k for row in rows for k, v in row.items() if v is not None}
    known = sorted(found - {'step'})
    raise ValueError(f'{path}: no metric {metric!r}; expected one of {known}.')
  return Curves(name, metric, train, valid)


def print_table(runs: Sequence[Curves]) -> None:
  """Print a table of one metric with a column for each run.

  The values are those of validation if there are any, or of training.
  """
  by_step = [dict(run.valid or run.train) for run in runs]
  rows = [
    [f'{step:,}']
    + [f'{run[step]:.4f}' if step in run else '' for run in by_step]
    for step in sorted(set().union(*by_step))
  ]
  splits = ('valid' if run.valid else 'training' for run in runs)
  names = (f'{run.name} ({x})' for run, x in zip(runs, splits, strict=True))
  heads = ['step', *names]
  reports.print_table(heads, rows, runs[0].metric, wrap=True)


def content(metrics: Sequence[Sequence[Curves]]) -> dict[str, Any]:
  """The numbers of all curves as JSON values, a panel for each metric."""
  return {
    'panels': [
      {
        'x': 'step',
        'y': runs[0].metric,
        'series': [
          {
            'name': f'{run.name} {split}',
            'points': [{'x': step, 'y': value} for step, value in curve],
          }
          for run in runs
          for split, curve in (('training', run.train), ('valid', run.valid))
          if curve
        ],
      }
      for runs in metrics
    ]
  }


def plot(metrics: Sequence[Sequence[Curves]], path: str | pathlib.Path) -> None:
  """Draw a panel for each metric; the ending of `path` names the format."""
  count = len(metrics)
  shape = {'nrows': count, 'figsize': (7, 1 + 3 * count), 'squeeze': False}
  with reports.picture(path, **shape) as (_, panels):
    for axes, runs in zip(panels[:, 0], metrics, strict=True):
      for run in runs:
        train, valid = (
          np.reshape(x, (-1, 2)).T for x in (run.train, run.valid)
        )
        (line,) = axes.plot(*train, alpha=0.4, linewidth=1, label=run.name)
        axes.plot(*valid, marker='o', color=line.get_color())
      axes.set(xlabel='step', ylabel=runs[0].metric)
      axes.grid(alpha=0.3)
      axes.legend()
  numbers = pathlib.Path(path).with_suffix('.json')
  reports.write_json(numbers, content(metrics))


def main(argv: list[str]) -> None:
  """Print the table and, with --output, draw the picture."""
  del argv
  runs = {}
  for value in flags.FLAGS.run:
    name, separator, workdir = value.partition('=')
    if not separator:
      raise ValueError(f'--run={value}: expected NAME=WORKDIR.')
    for metric in flags.FLAGS.metric:
      curves = read(name, workdir, metric)
      runs.setdefault(metric, []).append(curves)
  for curves in runs.values():
    print_table(curves)
  if flags.FLAGS.output:
    plot(list(runs.values()), flags.FLAGS.output)


if __name__ == '__main__':
  flags.DEFINE_multi_string('run', None, 'NAME=WORKDIR; once for each run.')
  flags.DEFINE_multi_string('metric', ['loss'], 'Metric to show.')
  flags.DEFINE_string('output', '', 'Picture to write (.png, .svg, .pdf).')
  flags.mark_flag_as_required('run')
  command.main_of_script(main)
