# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pictures: panels of series of points, with intervals, from JSON values.

A panel has the texts `x` and `y` of its axes and `series`; it may have a `title`, a line
at `zero`, a `log` axis of x and a `width` in inches. A series has a `name` and `points`
of x, y and perhaps `low` and `high`, the ends of an interval, and `of_seeds`. Series
that show the same share a `color`, a number; the second one of them is `dashed`. Text
stands on white, so that a dark page shows it, too.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import os
import pathlib
from typing import Any

import numpy as np

from retrieval.store import output_files

_MARKERS = 'osD^vP'
_MARKED = 30  # points of a series that have markers
_APART = 5  # points of the page between the intervals of two series
_WIDTH, _HEIGHT = 4.8, 4.4  # inches of a panel, which is narrower among three
_WHOLE = 10.2  # inches that a notebook shows unscaled
_TICKS = 8  # places on an axis, at most


@contextlib.contextmanager
def picture(path: str | os.PathLike, **settings: Any) -> Iterator[tuple]:
  """Yield figure and axes of `pyplot.subplots(**settings)`; save the figure."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot

  output_files.check_name(path)
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  figure, axes = pyplot.subplots(layout='constrained', **settings)
  kinds = sorted(figure.canvas.get_supported_filetypes())
  try:
    if pathlib.Path(path).suffix[1:] not in kinds:
      raise ValueError(f'{path}: expected a name that ends in one of {kinds}.')
    yield figure, axes
    figure.savefig(path, dpi=110, bbox_inches='tight', facecolor='white')
  finally:
    pyplot.close(figure)


def draw(panels: Sequence[Mapping[str, Any]], path: str | os.PathLike) -> None:
  """Draw panels in a row, up to three in a notebook's width."""
  count = len(panels)
  width = sum(panel.get('width', _WIDTH) for panel in panels)
  shape = {'ncols': count, 'squeeze': False}
  size = min(width, _WHOLE), _HEIGHT
  with picture(path, figsize=size, **shape) as (_, grid):
    for axes, panel in zip(grid[0], panels, strict=True):
      _draw_panel(axes, panel, legend_columns=2 if count < 3 else 1)


def _spread(places: Sequence[float], log: bool) -> list[float]:
  """The ascending places that are far enough from the one before."""
  places = np.unique(places)
  at = np.log(places) if log else places
  chosen = [0]
  for i in range(1, len(at)):
    if at[i] - at[chosen[-1]] >= (at[-1] - at[0]) / _TICKS:
      chosen.append(i)
  return places[chosen].tolist()


def _draw_panel(axes, panel: Mapping[str, Any], legend_columns: int) -> None:
  """Draw a panel; an x that is a text names a place on the axis."""
  places = [
    *dict.fromkeys(p['x'] for s in panel['series'] for p in s['points'])
  ]
  named = isinstance(places[0], str)
  if panel.get('zero'):
    axes.axhline(0, color='black', linewidth=0.8)
  for i, series in enumerate(panel['series']):
    at = [places.index(p['x']) if named else p['x'] for p in series['points']]
    _draw_series(axes, series, at, i, len(panel['series']), named)
  if panel.get('log'):
    axes.set_xscale('log')
  if named:
    heads = [x.replace(', ', ',\n') for x in places]
    axes.set_xticks(range(len(heads)), heads)
    axes.margins(x=0.1)
  elif len(places) <= _TICKS:
    places = _spread(places, bool(panel.get('log')))
    axes.set_xticks(places, [f'{x:,g}' for x in places])
    axes.minorticks_off()
  axes.set(title=panel.get('title', ''), xlabel=panel['x'], ylabel=panel['y'])
  axes.autoscale_view()
  axes.grid(alpha=0.3)
  below = {'loc': 'upper center', 'bbox_to_anchor': (0.5, -0.2)}
  if len(panel['series']) > 1 or panel['series'][0]['name']:
    axes.legend(fontsize='small', ncols=legend_columns, frameon=False, **below)


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
  line = '' if named else '--' if series.get('dashed') else '-'
  color = f'C{series.get("color", number)}'
  axes.errorbar(
    at,
    [p['y'] for p in points],
    ends if has_ends else None,
    fmt=_MARKERS[number % len(_MARKERS)] + line,
    markersize=4 if len(at) <= _MARKED else 0,
    markerfacecolor='white' if series.get('dashed') else color,
    color=color,
    capsize=2,
    linewidth=1.2,
    label=series['name'],
    transform=moved,
  )
  for x, point in zip(at, points, strict=True):
    seeds = point.get('of_seeds', [])
    axes.plot([x] * len(seeds), seeds, '_', color=color, transform=moved)
    # Matplotlib leaves out what is moved when it chooses the limits.
    low_high = (point[end] for end in ('low', 'high') if end in point)
    axes.update_datalim([(x, y) for y in (point['y'], *seeds, *low_high)])
