# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws the learning curves of training runs, and prints them as a table.

  python -m experiments.plot_curves --run=retro=runs/simplewiki/retro \
    --run=twin=runs/simplewiki/twin --output=curves.png

Reads each run's metrics.jsonl: training loss as a line, validation loss as dots.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import sys

from absl import flags
import rich.box
import rich.table

from experiments import command
from experiments import metric_writer
from experiments import progress


@dataclasses.dataclass(frozen=True)
class Curves:
  """One run's losses, in nats a token.

  Attributes:
    name: of the run.
    train: (step, loss) by rising step.
    valid: likewise.
  """

  name: str
  train: Sequence[tuple[int, float]]
  valid: Sequence[tuple[int, float]]


def read(name: str, workdir: str | pathlib.Path) -> Curves:
  """Reads a run's metrics.

  Args:
    name: to be shown.
    workdir: of the run.

  Returns:
    Its curves.

  Raises:
    ValueError: when there is no metrics file.
  """
  path = pathlib.Path(workdir) / metric_writer.FILE
  if not path.is_file():
    raise ValueError(f'{path}: not found; expected a training run there.')
  train, valid = [], []
  for row in metric_writer.read(path):
    for key, curve in (('loss', train), ('valid/loss', valid)):
      if row.get(key) is not None:
        curve.append((row['step'], row[key]))
  return Curves(name, train, valid)


def make_table(runs: Sequence[Curves]) -> rich.table.Table:
  """Validation losses, a column for each run."""
  table = rich.table.Table(
    'step',
    *(run.name for run in runs),
    title='validation loss, nats a token',
    box=rich.box.SIMPLE_HEAD,
  )
  by_step = [dict(run.valid) for run in runs]
  for step in sorted(set().union(*by_step)):
    cells = (f'{run[step]:.4f}' if step in run else '' for run in by_step)
    table.add_row(f'{step:,}', *cells)
  return table


def plot(runs: Sequence[Curves], path: str | pathlib.Path) -> None:
  """Writes the picture; the file's ending names its format."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot

  figure, axes = pyplot.subplots(figsize=(7, 4), layout='constrained')
  for run in runs:
    (line,) = axes.plot(*_columns(run.train), alpha=0.4, linewidth=1)
    axes.plot(
      *_columns(run.valid),
      marker='o',
      color=line.get_color(),
      label=run.name,
    )
  axes.set(xlabel='step', ylabel='nats a token (line: training, dots: valid)')
  axes.grid(alpha=0.3)
  axes.legend()
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=110)
  pyplot.close(figure)


def _columns(
  curve: Sequence[tuple[int, float]],
) -> tuple[list[int], list[float]]:
  return [step for step, _ in curve], [loss for _, loss in curve]


def main(argv: list[str]) -> None:
  """Prints the table and, with --output, draws the picture."""
  del argv
  runs = []
  try:
    for value in flags.FLAGS.run:
      name, separator, workdir = value.partition('=')
      if not separator:
        raise ValueError(f'--run={value}: expected NAME=WORKDIR.')
      runs.append(read(name, workdir))
  except ValueError as error:
    sys.exit(f'error: {error}')
  progress.console().print(make_table(runs))
  if flags.FLAGS.output:
    plot(runs, flags.FLAGS.output)


if __name__ == '__main__':
  flags.DEFINE_multi_string('run', None, 'NAME=WORKDIR; once for each run.')
  flags.DEFINE_string('output', '', 'Picture to write (.png, .svg, .pdf).')
  flags.mark_flag_as_required('run')
  command.main_of_script(main)
