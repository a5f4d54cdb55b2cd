# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Print a table of RETRO's paper beside the figures measured here.

  python -m experiments.tables.retro_tables --table=14 --run=small=runs/simplewiki/retro \
    --output=tables

The tables are 3, 4, 5, 13, 14, 15, retrofit and leakage. Each --run=NAME=DIR,
or DIR alone, is a workdir. The command reads its evaluation.json, lambada.json,
summary.json, sweep_*.json, leakage.json, retro_qa.json, fid_qa.json and knn_lm.json,
if they exist. In tables whose lines are runs of their own (13, 15 and retrofit), NAME
is the line's. Each scale is the scale of the evaluated run. A figure that was
not measured reads "not run". The command prints the table and writes it into
--output as Markdown, as CSV and, if any figure was measured, as a picture.
"""

import contextlib
import csv
import io
import os
import pathlib

from absl import flags

from experiments.engine import command, reports
from experiments.tables import paper_table, run_results
from retrieval.store import store

# The results that the paper only draws have names instead of numbers.
NAMES = ('3', '4', '5', '13', '14', '15', 'retrofit', 'leakage')


def load(name: str) -> paper_table.PaperTable:
  """Read one of `NAMES`."""
  return paper_table.load(f'retro_{name}')


def _cell(source: paper_table.Source | None, runs: run_results.Runs) -> str:
  if source is None:
    return ''
  named = len(runs) > 1 and not source.run
  texts = [
    f'{name} {value:.4g}' if named else f'{value:.4g}'
    for name, value in run_results.find_all(source, runs)
  ]
  return '; '.join(texts) or paper_table.NOT_RUN


def lines(
  table: paper_table.PaperTable, runs: run_results.Runs
) -> tuple[list[str], list[list[str]]]:
  """Return the headings and the cells of each line."""
  heads = ['', *(f'paper: {x}' for x in table.columns)]
  heads += [f'ours: {x}' for x in table.ours]
  body = [
    [row.name, *row.paper, *(_cell(source, runs) for source in row.ours)]
    for row in table.rows
  ]
  return heads, body


def caption(table: paper_table.PaperTable, runs: run_results.Runs) -> str:
  """Return the scales of the paper's figures and of ours, and the note."""
  parts = [f'Scale of the paper: {table.scale}.']
  parts += [
    f'Scale of {name}: {run_results.describe(path)}.'
    for name, path in runs.items()
  ]
  if not runs:
    parts.append('No run was given.')
  if table.note:
    parts.append(table.note)
  return ' '.join(parts)


def plot(
  table: paper_table.PaperTable, runs: run_results.Runs, path: pathlib.Path
) -> bool:
  """Draw lines with figures of ours; return whether there are any."""
  found = [
    (row, [run_results.find_all(source, runs) for source in row.ours])
    for row in table.rows
  ]
  drawn = [(row, cells) for row, cells in found if any(cells)]
  if not drawn:
    return False
  series: dict[str, list[tuple[float, int]]] = {}
  for i, (row, cells) in enumerate(drawn):
    for head, text in zip(table.columns, row.paper, strict=True):
      with contextlib.suppress(ValueError):  # '-'
        point = float(text), i
        series.setdefault(f'paper: {head}', []).append(point)
    for head, cell, source in zip(table.ours, cells, row.ours, strict=True):
      for name, value in cell if source and source.drawn else ():
        label = head if row.ours[0] and row.ours[0].run else f'{name}: {head}'
        series.setdefault(f'ours, {label}', []).append((value, i))
  size = 8, 1.5 + 0.45 * len(drawn)
  with reports.picture(path, figsize=size) as (figure, axes):
    for label, points in series.items():
      marker = 'o' if label.startswith('ours') else '|'
      axes.plot(*zip(*points, strict=True), marker, label=label)
    axes.set_yticks(range(len(drawn)), [row.name for row, _ in drawn])
    axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.set_title(table.title)
    figure.legend(loc='outside lower center', ncols=3, fontsize='small')
  return True


def write(
  name: str, runs: run_results.Runs, output: str | os.PathLike
) -> list[pathlib.Path]:
  """Write a table as .md, .csv and, if any figure was measured, .png."""
  table, root = load(name), pathlib.Path(output)
  root.mkdir(parents=True, exist_ok=True)
  heads, body = lines(table, runs)
  stem = f'table{name}' if name.isdigit() else name
  files = [root / f'{stem}.{ending}' for ending in ('md', 'csv', 'png')]
  paper_table.write_markdown(
    files[0], heads, body, caption(table, runs), table.title
  )
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows([heads, *body])
  store.write_atomically(files[1], text.getvalue().encode())
  return files if plot(table, runs, files[2]) else files[:2]


def main(argv: list[str]) -> None:
  """Print the tables and write them."""
  if len(argv) > 1:
    raise ValueError(f'Unexpected arguments {argv[1:]}; flags start with --.')
  runs = run_results.parse_runs(flags.FLAGS.run)
  for name in flags.FLAGS.table:
    table = load(name)
    reports.print_table(
      *lines(table, runs), table.title, caption(table, runs), wrap=True
    )
    if flags.FLAGS.output:
      print('written:', *write(name, runs, flags.FLAGS.output))


if __name__ == '__main__':
  flags.DEFINE_multi_enum(
    'table', None, NAMES, 'Table to print; may be given several times.'
  )
  flags.DEFINE_multi_string('run', [], 'NAME=DIR or DIR; once for each run.')
  flags.DEFINE_string('output', '', 'Folder for Markdown, CSV and pictures.')
  flags.mark_flag_as_required('table')
  command.main_of_script(main)
