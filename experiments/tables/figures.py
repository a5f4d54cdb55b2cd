# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of docs/results/claims.md: their numbers, pictures and text.

figures.json beside this module holds the panels of each figure and their series. The
points of a series have the places `x`; their values are in the results file `file` at
the path `at`, in which {x} and {seed} are replaced. With `seeds` a point is the mean of
their values; `less` is the path of what is subtracted. Beside each picture a JSON file
holds the numbers that it shows.
"""

from collections.abc import Iterator, Mapping, Sequence
import json
import pathlib
from typing import Any

import numpy as np

from experiments.engine import reports
from experiments.tables import evidence

FIGURES = pathlib.Path(__file__).with_suffix('.json')
FOLDER = 'figures'
_MARKERS = 'osD^vP'
_MARKED = 30  # points of a series that have markers
_APART = 5  # points of the page between the intervals of two series
_Place = tuple[str, list[str]]


def load() -> list[dict[str, Any]]:
  """Read figures.json."""
  return json.loads(FIGURES.read_text(encoding='utf-8'))


def _places(series: Mapping[str, Any], x: Any) -> list[list[_Place]]:
  """For each seed, where the value of a point is, and what is less."""

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
  found = [
    [evidence.read(folders, *place) for place in one]
    for one in _places(series, x)
  ]
  if any(None in values for values in found):
    return None
  values = [first.mean - sum(y.mean for y in less) for first, *less in found]
  point = {'x': x, 'y': float(np.mean(values))}
  if 'seeds' in series or 'less' in series:
    seeds = values
  else:
    ((value,),) = found
    seeds = value.of_seeds
    if value.low is not None:
      point |= {'low': value.low, 'high': value.high}
  return point | ({'of_seeds': [*seeds]} if len(seeds) > 1 else {})


def build(
  figure: Mapping[str, Any], folders: Sequence[pathlib.Path]
) -> dict[str, Any]:
  """Return a figure with its points; what was not measured is left out.

  Raises:
    ValueError: for a results file of another form.
  """
  panels = []
  for panel in figure['panels']:
    series = []
    for one in panel['series']:
      points = [_point(one, x, folders) for x in one['x']]
      if points := [x for x in points if x is not None]:
        series.append({'name': one['name'], 'points': points})
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
  """Draw a figure that `build` returned, and write its JSON file beside it."""
  panels = figure['panels']
  width = sum(panel.get('width', 4.8) for panel in panels)
  shape = {'ncols': len(panels), 'figsize': (width, 4.4), 'squeeze': False}
  with reports.picture(path, **shape) as (_, axes):
    for one, panel in zip(axes[0], panels, strict=True):
      _draw_panel(one, panel)
  reports.write_json(path.with_suffix('.json'), figure)


def _draw_panel(axes, panel: Mapping[str, Any]) -> None:
  """Draw a panel; an x that is a text names a place on the axis."""
  places_x = [
    *dict.fromkeys(p['x'] for s in panel['series'] for p in s['points'])
  ]
  named = isinstance(places_x[0], str)
  if panel.get('zero'):
    axes.axhline(0, color='black', linewidth=0.8)
  for i, series in enumerate(panel['series']):
    at = [places_x.index(p['x']) if named else p['x'] for p in series['points']]
    _draw_series(axes, series, at, i, len(panel['series']), named)
  if panel.get('log'):
    axes.set_xscale('log')
  if named:
    heads = [x.replace(', ', ',\n') for x in places_x]
    axes.set_xticks(range(len(heads)), heads)
    axes.margins(x=0.1)
  elif len(places_x) < 9:
    axes.set_xticks(sorted(places_x), [f'{x:g}' for x in sorted(places_x)])
    axes.minorticks_off()
  axes.set(title=panel.get('title', ''), xlabel=panel['x'], ylabel=panel['y'])
  axes.autoscale_view()
  axes.grid(alpha=0.3)
  below = {'loc': 'upper center', 'bbox_to_anchor': (0.5, -0.2)}
  axes.legend(fontsize='small', ncols=2, frameon=False, **below)


def _draw_series(axes, series, at, number, count, named) -> None:
  """Draw points with intervals, and a dash for the value of each seed."""
  from matplotlib import transforms

  points = series['points']
  ends = [
    [abs(p['y'] - p.get(end, p['y'])) for p in points]
    for end in ('low', 'high')
  ]
  has_ends = bool(np.any(ends))
  apart = _APART * (number - (count - 1) / 2) if has_ends or named else 0
  moved = axes.transData + transforms.ScaledTranslation(
    apart / 72, 0, axes.figure.dpi_scale_trans
  )
  drawn, *_ = axes.errorbar(
    at,
    [p['y'] for p in points],
    ends if has_ends else None,
    fmt=_MARKERS[number % len(_MARKERS)] + ('' if named else '-'),
    markersize=4 if len(at) <= _MARKED else 0,
    capsize=2,
    linewidth=1.2,
    label=series['name'],
    transform=moved,
  )
  color = drawn.get_color()
  for x, point in zip(at, points, strict=True):
    seeds = point.get('of_seeds', [])
    axes.plot([x] * len(seeds), seeds, '_', color=color, transform=moved)
    # Matplotlib leaves out what is moved when it chooses the limits.
    low_high = (point[end] for end in ('low', 'high') if end in point)
    axes.update_datalim([(x, y) for y in (point['y'], *seeds, *low_high)])


def markdown(drawn: Sequence[Mapping[str, Any]]) -> list[str]:
  """The section of the page; [] for no figures."""
  lines = ['', '## Figures'] if drawn else []
  for figure in drawn:
    path = f'{FOLDER}/{figure["name"]}'
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
