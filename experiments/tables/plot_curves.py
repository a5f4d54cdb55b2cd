# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw the learning curves of training runs and print them as a table.

  python -m experiments.tables.plot_curves --run=retro=runs/simplewiki/retro \
    --run=baseline=runs/simplewiki/baseline --output=curves.png

The command reads each run's metrics.jsonl. Measures of training are a line,
measures of validation are dots. --metric, which may be given several times,
names other metrics than the loss, such as retrieval_utility.
"""

from collections.abc import Sequence
import dataclasses
import pathlib

from absl import flags
import rich.box
import rich.table

from experiments.engine import command, metric_writer, progress


@dataclasses.dataclass(frozen=True)
class Curves:
  """A metric of one run."""

  name: str  # name of the run
  metric: str  # name of the metric
  # (step, value) of training, by rising step
  train: Sequence[tuple[int, float]]
  # (step, value) of validation, by rising step; may be empty
  valid: Sequence[tuple[int, float]]

  @property
  def shown(self) -> Sequence[tuple[int, float]]:
    """Values for the table: of validation if there are any, or of training."""
    return self.valid or self.train

  @property
  def label(self) -> str:
    """Name of the run, and the split of `shown`."""
    return f'{self.name} ({"valid" if self.valid else "training"})'


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


def make_table(runs: Sequence[Curves]) -> rich.table.Table:
  """Return a table of one metric with a column for each run."""
  table = rich.table.Table(
    'step',
    *(run.label for run in runs),
    title=runs[0].metric,
    box=rich.box.SIMPLE_HEAD,
  )
  by_step = [dict(run.shown) for run in runs]
  for step in sorted(set().union(*by_step)):
    cells = (f'{run[step]:.4f}' if step in run else '' for run in by_step)
    table.add_row(f'{step:,}', *cells)
  return table


def plot(metrics: Sequence[Sequence[Curves]], path: str | pathlib.Path) -> None:
  """Draw a panel for each metric; the ending of `path` names the format."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot

  figure, panels = pyplot.subplots(
    len(metrics),
    figsize=(7, 1 + 3 * len(metrics)),
    layout='constrained',
    squeeze=False,
  )
  for axes, runs in zip(panels[:, 0], metrics, strict=True):
    for run in runs:
      (line,) = axes.plot(*_columns(run.train), alpha=0.4, linewidth=1)
      line.set_label(run.name)
      axes.plot(*_columns(run.valid), marker='o', color=line.get_color())
    axes.set(xlabel='step', ylabel=runs[0].metric)
    axes.grid(alpha=0.3)
    axes.legend()
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=110)
  pyplot.close(figure)


def _columns(
  curve: Sequence[tuple[int, float]],
) -> tuple[list[int], list[float]]:
  return [step for step, _ in curve], [value for _, value in curve]


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
    progress.console().print(make_table(curves))
  if flags.FLAGS.output:
    plot(list(runs.values()), flags.FLAGS.output)


if __name__ == '__main__':
  flags.DEFINE_multi_string('run', None, 'NAME=WORKDIR; once for each run.')
  flags.DEFINE_multi_string('metric', ['loss'], 'Metric to show.')
  flags.DEFINE_string('output', '', 'Picture to write (.png, .svg, .pdf).')
  flags.mark_flag_as_required('run')
  command.main_of_script(main)
