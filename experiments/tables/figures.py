# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of docs/lab-notes/claims.md: their numbers, pictures and text.

figures.json beside this module holds the panels of each figure and their series. The
points of a series have the places `x`; their values are in the results file `file` at
the path `at`, in which {x} and {seed} are replaced. With `seeds` a point is the mean of
their values; `less` is the path of what is subtracted. Intervals of seeds are over both
levels (see `intervals`). Beside each picture a JSON file holds the numbers that it
shows.
"""

from collections.abc import Iterator, Mapping, Sequence
import json
import pathlib
from typing import Any

import numpy as np

from experiments.engine import metric_writer, pictures, reports
from experiments.tables import evidence

FIGURES = pathlib.Path(__file__).with_suffix('.json')
FOLDER = 'results/figures'
_SHOWN = 'name', 'color', 'dashed'  # of a series, see `pictures`
_Place = tuple[str, list[str]]


def load() -> list[dict[str, Any]]:
  """Read figures.json."""
  return json.loads(FIGURES.read_text(encoding='utf-8'))


def _places(series: Mapping[str, Any], x: Any) -> list[list[_Place]]:
  """Return for each seed the places of a point's value and of the subtracted one."""

  def fill(text, seed):
    return text.replace('{x}', str(x)).replace('{seed}', str(seed))

  ats = [series[key] for key in ('at', 'less') if key in series]
  return [
    [(fill(series['file'], s), [fill(y, s) for y in at]) for at in ats]
    for s in series.get('seeds', [''])
  ]


def places(figures: Sequence[Mapping[str, Any]]) -> Iterator[_Place]:
  """Yield file and path of every value that the figures show."""
  for figure in figures:
    for panel in figure['panels']:
      for series in panel['series']:
        for x in series['x']:
          for one in _places(series, x):
            yield from one


def _point(
  series: Mapping[str, Any], x: Any, folders: Sequence[pathlib.Path]
) -> dict[str, Any] | None:
  """A point with its interval and seeds; None where it was not measured."""
  read = [
    [evidence.read(folders, *place) for place in one]
    for one in _places(series, x)
  ]
  if any(None in values for values in read):
    return None
  values = [first.mean - sum(y.mean for y in less) for first, *less in read]
  point = {'x': x, 'y': float(np.mean(values))}
  of_one = len(values) == 1 and 'less' not in series
  seeds = read[0][0].of_seeds if of_one else values
  if 'less' not in series and all(x.low is not None for (x,) in read):
    first = read[0][0]
    ends = first.low, first.high
    if len(seeds) > 1:
      ends = evidence.estimate([x for (x,) in read]).interval()
    point |= dict(zip(('low', 'high'), ends, strict=True))
  return point | ({'of_seeds': [*seeds]} if len(seeds) > 1 else {})


def build(
  figure: Mapping[str, Any], folders: Sequence[pathlib.Path]
) -> dict[str, Any]:
  """Return a figure with its points; points that were not measured are left out.

  Raises:
    ValueError: for a results file of another form.
  """
  panels = []
  for panel in figure['panels']:
    series = []
    for one in panel['series']:
      points = [_point(one, x, folders) for x in one['x']]
      if points := [x for x in points if x is not None]:
        look = {k: one[k] for k in _SHOWN if k in one}
        series.append({**look, 'points': points})
    if series:
      panels.append({**panel, 'series': series})
  return {**figure, 'panels': panels}


def draw_all(
  figures: Sequence[Mapping[str, Any]],
  folders: Sequence[pathlib.Path],
  output: pathlib.Path,
) -> list[dict[str, Any]]:
  """Draw the figures that were measured, and return their content."""
  built = [build(figure, folders) for figure in figures]
  built = [figure for figure in built if figure['panels']]
  for figure in built:
    draw(figure, output / f'{figure["name"]}.png')
  return built


def draw(figure: Mapping[str, Any], path: pathlib.Path) -> None:
  """Draw a figure, and write its JSON file beside it."""
  pictures.draw(figure['panels'], path)
  reports.write_json(path.with_suffix('.json'), figure)


def markdown(drawn: Sequence[Mapping[str, Any]]) -> list[str]:
  """The section of the page; [] for no figures."""
  lines = ['', '## Figures'] if drawn else []
  for figure in drawn:
    path = f'../{FOLDER}/{figure["name"]}'
    links = ', '.join(f'[{x}](#{x})' for x in figure['measured'])
    lines += [
      '',
      f'### {figure["title"]}',
      '',
      f'![{figure["title"]}]({path}.png)',
    ]
    text = f'{figure["caption"]} [Numbers]({path}.json); commands: {links}.'
    lines += ['', text]
  return lines


def read_curve(
  workdir: pathlib.Path, metric: str
) -> dict[str, list[dict[str, Any]]]:
  """Read a metric of a run.

  Returns:
    'training' and 'valid' -> points {x: step, y: value} by rising step; a part
    without points is left out.

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
    expected = (
      f'expected one of {known}' if known else 'the file has no metrics'
    )
    raise ValueError(f'{path}: no metric {metric!r}; {expected}.')
  return {name: points for name, points in parts.items() if points}


def of_curves(
  runs: Mapping[str, pathlib.Path], metrics: Sequence[str]
) -> dict[str, Any]:
  """Return a figure with a panel for each metric and its runs' curves."""
  panels = []
  for metric in metrics:
    series = [
      {'name': f'{name} {part}', 'points': points}
      for name, folder in runs.items()
      for part, points in read_curve(folder, metric).items()
    ]
    panels.append({'x': 'step', 'y': metric, 'series': series})
  return {'panels': panels}


def curve_tables(
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
