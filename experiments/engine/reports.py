# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Results as JSON files and as tables for the terminal."""

from collections.abc import Mapping, Sequence
import io
import json
import math
import os
import pathlib
from typing import Any

import numpy as np
import rich.box
import rich.measure
import rich.table

from experiments.engine import progress
from retrieval.store import output_files

_WIDEST = 1000


def write_json(path: str | os.PathLike, content: Any) -> pathlib.Path:
  """Write JSON values, whole or not at all, and return the path.

  Numbers that are not finite become null.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  content = json.loads(json.dumps(content), parse_constant=lambda _: None)
  text = json.dumps(content, indent=2)
  output_files.write(path, f'{text}\n'.encode())
  return path


def write_arrays(
  path: str | os.PathLike, arrays: Mapping[str, np.ndarray]
) -> pathlib.Path:
  """Write an .npz file, whole or not at all, and return the path."""
  path, content = pathlib.Path(path), io.BytesIO()
  path.parent.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(content, **arrays)
  output_files.write(path, content.getvalue())
  return path


def print_table(
  columns: Sequence[str],
  rows: Sequence[Sequence[str]],
  title: str = '',
  caption: str = '',
  wrap: bool = False,
) -> None:
  """Print a table; every column but the first one is aligned to the right.

  Cells keep to one line in tables of three columns or more, unless `wrap`, or where
  they do not fit into a terminal. Elsewhere such a table is as wide as it has to be.
  """
  one_line = len(columns) > 2 and not wrap
  table = rich.table.Table(
    title=title or None,
    caption=caption or None,
    caption_justify='left',
    box=rich.box.SIMPLE_HEAD,
  )
  for i, name in enumerate(columns):
    side = 'right' if i else 'left'
    table.add_column(name, justify=side, no_wrap=one_line, overflow='fold')
  for row in rows:
    table.add_row(*row)
  console = progress.console()
  wide = console.options.update(max_width=_WIDEST)
  width = rich.measure.Measurement.get(console, wide, table).maximum
  if one_line and width > console.width:
    if console.is_terminal:
      for column in table.columns:
        column.no_wrap = False
    else:
      console.width = width
  console.print(table)


def half_width(interval: Mapping[str, float], form: str, unit: int = 1) -> str:
  """Return ' ±' and half the width of an interval; '' if its ends are NaN."""
  half = (interval['high'] - interval['low']) / 2
  return f' ±{unit * half:{form}}' if math.isfinite(half) else ''


def ends(interval: Mapping[str, float], form: str, between: str = ' ') -> str:
  """Return both ends of an interval; '-' if they are NaN."""
  low, high = interval['low'], interval['high']
  if not math.isfinite(low + high):
    return '-'
  return f'{low:{form}}{between}{high:{form}}'


def share(interval: Mapping[str, float] | None) -> str:
  """A share in percent with half the width of its interval; '-' for None."""
  if interval is None:
    return '-'
  return f'{100 * interval["mean"]:.1f}{half_width(interval, ".1f", 100)}'


def signed(interval: Mapping[str, float]) -> str:
  """A difference in percent with half the width of its interval."""
  cell = share(interval)
  return cell if cell.startswith('-') else f'+{cell}'


def print_shares(rows: Sequence[Mapping[str, Any]]) -> None:
  """Print a column for each question set, in percent.

  Args:
    rows: `dataset`, number of `questions`, and measures: name -> {mean, low, high}.
  """
  names = dict.fromkeys(
    name for row in rows for name, x in row.items() if isinstance(x, Mapping)
  )
  print_table(
    ['measure', *(row['dataset'] for row in rows)],
    [
      ['questions', *(f'{row["questions"]:,}' for row in rows)],
      *([name, *(share(row.get(name)) for row in rows)] for name in names),
    ],
  )
