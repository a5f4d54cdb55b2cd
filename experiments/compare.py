# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare evaluated models, with their seeds, on the same items.

  python -m experiments.compare --workdir=DIR --row=baseline=RUN \
    --row=retro=RUN --row=retro=SECOND_SEED --row="off=RUN:RETRO off"

A row is a name and a table that experiments.evaluate wrote: its file, or the folder
of evaluation.json, and after a colon the name of the table's row, such as RETRO off
or BM25; by default the first row of bits per byte. Tables of one name are seeds of
one row, whose items count with the mean of their values.

Prints totals, and differences from the first row with intervals of a paired bootstrap
over items, and of several seeds over items and seeds. Writes DIR/compare.json, where
each row has its differences from all others (`minus`), and compare.npz with the
values of each item, [seeds, items] a row and measure.
"""

from collections.abc import Mapping, Sequence
import pathlib
from typing import Any

from absl import flags
import numpy as np

from experiments.engine import command, evaluations, reports
from experiments.tables import intervals
from retrieval.store import manifests

FILE = 'compare.json'
_EVALUATION = 'evaluation.json'


def read(text: str) -> evaluations.Row:
  """Read a row of a table.

  Args:
    text: NAME=TABLE or NAME=TABLE:ROW.

  Raises:
    ValueError: if there is no such table or row.
  """
  name, _, place = text.partition('=')
  table, _, row_name = place.partition(':')
  path = pathlib.Path(table)
  path = path / _EVALUATION if path.is_dir() else path
  arrays_path = path.with_suffix('.npz')
  if not (name and table and path.is_file() and arrays_path.is_file()):
    raise ValueError(
      f'--row={text}: expected NAME=TABLE[:ROW], a table of experiments.evaluate; '
      f'{path} or its .npz is missing.'
    )
  with np.load(arrays_path) as arrays:
    values = {key: arrays[key] for key in arrays}
  num_bytes = values.pop('bytes', None)
  if not row_name and num_bytes is not None:
    row_name = next(iter(values))
  measures = {key: x for key, x in values.items() if not row_name}
  for key, x in values.items():
    if key == row_name or key.startswith(f'{row_name}, '):
      measures[key.removeprefix(row_name).removeprefix(', ')] = x
  if not measures:
    raise ValueError(f'--row={text}: no such row; {path} has {[*values]}.')
  blocks = manifests.read_object(path).get('blocks', '')
  return evaluations.Row(
    name=name, values=measures, num_bytes=num_bytes, facts={'blocks': blocks}
  )


def join(rows: Sequence[evaluations.Row]) -> list[evaluations.Row]:
  """Join rows of one name as seeds; ValueError for other measures or items."""
  seeds: dict[str, list[evaluations.Row]] = {}
  for row in rows:
    seeds.setdefault(row.name, []).append(row)
    if row.values.keys() != rows[0].values.keys():
      raise ValueError(
        f'Rows {rows[0].name} and {row.name} have other measures: '
        f'{[*rows[0].values]} and {[*row.values]}.'
      )
    if row.facts['blocks'] != rows[0].facts['blocks']:
      raise ValueError(
        f'Rows {rows[0].name} and {row.name} search the blocks of other data.'
      )
  joined = []
  for name, same in seeds.items():
    for row in same[1:]:
      row.check_items(same[0])
    values = {
      key: np.concatenate([np.atleast_2d(row.values[key]) for row in same])
      for key in same[0].values
    }
    num_bytes = same[0].num_bytes
    joined.append(
      evaluations.Row(name=name, values=values, num_bytes=num_bytes)
    )
  return joined


def compare(workdir: str, texts: Sequence[str]) -> dict[str, Any]:
  """Print the tables of --row, write the files and return their content."""
  if not texts:
    raise ValueError('--row: expected NAME=TABLE[:ROW], once for each table.')
  rows = join([read(text) for text in texts])
  for row in rows:
    seeds = {measure: row.of_seeds(measure) for measure in row.values}
    totals = {
      measure: {'mean': float(np.mean(each)), 'of_seeds': each}
      for measure, each in seeds.items()
    }
    minus = {
      other.name: _nested({x: row.minus(other, x) for x in row.values})
      for other in rows
      if other is not row
    }
    row.facts.update(totals=_nested(totals), minus=minus)
  for measure in rows[0].values:
    _print(rows, measure)
  evaluations.write(pathlib.Path(workdir) / FILE, rows, tables=[*texts])
  return {'rows': [{'name': row.name, **row.facts} for row in rows]}


def _nested(values: Mapping[str, Any]) -> Any:
  """Return question set -> measure -> value, or the value of the only measure."""
  nested: dict[str, Any] = {}
  for name, value in values.items():
    items, _, measure = name.rpartition(', ')
    if not measure:
      return value
    nested.setdefault(items, {})[measure] = value
  return nested


def _print(rows: Sequence[evaluations.Row], measure: str) -> None:
  first, lines = rows[0], []
  for row in rows:
    cells = [row.name, f'{np.mean(row.of_seeds(measure)):.4f}', *[''] * 4]
    if row is not first:
      less = row.minus(first, measure)
      cells[2:4] = f'{less["mean"]:+.4f}', reports.ends(less, '+.4f')
      cells[4] = _over_both(row, first, measure)
      cells[5] = ' '.join(f'{x:+.4f}' for x in less['of_seeds'])
    lines.append(cells)
  size = f'{first.values[measure].shape[-1]:,} items'
  if first.num_bytes is not None:
    size += f', {int(first.num_bytes.sum()):,} bytes'
  total = measure or ('bits/byte' if first.num_bytes is not None else 'mean')
  heads = 'minus first', 'interval', 'over seeds, too', 'of each seed'
  reports.print_table(
    ('row', total, *heads),
    lines,
    title=size,
    caption=f'Interval: 95 % of a paired bootstrap against {first.name!r} over '
    'items, of the mean over seeds; then over items and seeds, crossed.',
  )


def _over_both(row, first, measure: str) -> str:
  """Return the interval over items and seeds; '-' of a single seed."""
  one, two = (np.atleast_2d(x.values[measure]) for x in (row, first))
  if len(one - two) < 2:
    return '-'
  low, high = intervals.of_values(one - two, first.weights).interval()
  return reports.ends({'low': low, 'high': high}, '+.4f')


def main(argv: list[str]) -> None:
  """Compare the tables of --row."""
  compare(flags.FLAGS.workdir, flags.FLAGS.row)


if __name__ == '__main__':
  command.define_output('workdir', None, 'Folder of the files.', is_folder=True)
  flags.DEFINE_multi_string('row', [], 'NAME=TABLE[:ROW]; once for each table.')
  flags.mark_flag_as_required('workdir')
  command.main_of_script(main)
