# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning curves of training runs, as a figure of experiments.tables.figures."""

from collections.abc import Iterator, Mapping, Sequence
import pathlib
from typing import Any

from experiments.engine import metric_writer


def read(workdir: pathlib.Path, metric: str) -> dict[str, list[dict[str, Any]]]:
  """Read a metric of a run.

  Returns:
    'training' and 'valid' -> points {x: step, y: value} by rising step; a part
    without points is left out.

  Raises:
    ValueError: if the run has no metrics file, or the file has no such metric.
  """
  path = workdir / metric_writer.FILE
  if not path.is_file():
    raise ValueError(f'{path}: not found; expected a training run there.')
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


def build(
  runs: Mapping[str, pathlib.Path], metrics: Sequence[str]
) -> dict[str, Any]:
  """Return a figure with a panel for each metric and its runs' curves."""
  panels = []
  for metric in metrics:
    series = [
      {'name': f'{name} {part}', 'points': points}
      for name, folder in runs.items()
      for part, points in read(folder, metric).items()
    ]
    panels.append({'x': 'step', 'y': metric, 'series': series})
  return {'panels': panels}


def tables(
  figure: Mapping[str, Any],
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
  """Yield title, headings and rows for each metric, with a column a curve.

  Curves of training are shown where a metric has none of validation.
  """
  for panel in figure['panels']:
    series = panel['series']
    shown = [x for x in series if x['name'].endswith(' valid')] or series
    columns = {x['name']: {p['x']: p['y'] for p in x['points']} for x in shown}
    rows = [
      [f'{step:,}']
      + [f'{x[step]:.4f}' if step in x else '' for x in columns.values()]
      for step in sorted(set().union(*columns.values()))
    ]
    yield panel['y'], ['step', *columns], rows
