# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning curves of runs: their points, tables and picture.

A panel has the names `x` and `y` of its axes, and `series` with a `name` and `points`.
"""

from collections.abc import Iterator, Mapping, Sequence
import pathlib
from typing import Any

from experiments.engine import metric_writer
from retrieval.store import output_files

_INCHES = 4.8, 4.4  # of a panel


def read(workdir: pathlib.Path, metric: str) -> dict[str, list[dict[str, Any]]]:
  """Read a metric of a run.

  Returns:
    'training' and 'valid' -> points by rising step; a part without points is left out.

  Raises:
    ValueError: if the run has no metrics file, or the file has no such metric.
  """
  path = workdir / metric_writer.FILE
  if not path.is_file():
    raise ValueError(f'{path}: missing; expected a training run there.')
  rows = metric_writer.read(path)
  parts = {
    name: [
      {'x': row['step'], 'y': row[key]}
      for row in rows
      if row.get(key) is not None
    ]
    for name, key in (('training', metric), ('valid', f'valid/{metric}'))
  }
  if not any(parts.values()):
    known = sorted({key for row in rows for key in row} - {'step'})
    raise ValueError(f'{path}: no metric {metric!r}; expected one of {known}.')
  return {name: points for name, points in parts.items() if points}


def panels(
  runs: Mapping[str, pathlib.Path], metrics: Sequence[str]
) -> list[dict[str, Any]]:
  """Return a panel for each metric with its runs' curves."""
  return [
    {
      'x': 'step',
      'y': metric,
      'series': [
        {'name': f'{name} {part}', 'points': points}
        for name, folder in runs.items()
        for part, points in read(folder, metric).items()
      ],
    }
    for metric in metrics
  ]


def tables(
  shown: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
  """Yield title, headings and rows for each panel, with a column a curve.

  Curves of training are shown where a metric has none of validation.
  """
  for panel in shown:
    series = panel['series']
    series = [x for x in series if x['name'].endswith(' valid')] or series
    columns = {x['name']: {p['x']: p['y'] for p in x['points']} for x in series}
    rows = [
      [f'{step:,}']
      + [f'{x[step]:.4f}' if step in x else '' for x in columns.values()]
      for step in sorted(set().union(*columns.values()))
    ]
    yield panel['y'], ['step', *columns], rows


def draw(shown: Sequence[Mapping[str, Any]], path: pathlib.Path) -> None:
  """Draw panels in a row; ValueError for a name of no kind of picture."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot

  output_files.check_name(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  width, height = _INCHES
  figure, axes = pyplot.subplots(
    ncols=len(shown),
    figsize=(width * len(shown), height),
    squeeze=False,
    layout='constrained',
  )
  for panel, one in zip(shown, axes[0], strict=True):
    for series in panel['series']:
      points = series['points']
      places = [p['x'] for p in points]
      one.plot(places, [p['y'] for p in points], label=series['name'])
    one.set(xlabel=panel['x'], ylabel=panel['y'])
    one.grid(alpha=0.3)
    one.legend(fontsize='small')
  figure.savefig(path, dpi=110, facecolor='white')
  pyplot.close(figure)
