# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Print a table of RETRO's or REALM's paper beside our figures, or learning curves.

  python -m experiments.tables.tables --table=retro_14 --run=small=runs/simplewiki/retro \
    --output=tables
  python -m experiments.tables.tables --table=realm_1 --run=orqa=runs/orqa
  python -m experiments.tables.tables --table=curves --run=retro=runs/quickstart/retro \
    --run=baseline=runs/quickstart/baseline --output=curves.png

Each --run=NAME=DIR, or DIR alone, is the workdir of a run with the results files of the
evaluating commands. Where the lines of a table are runs of their own, NAME is the
line's; the table's note says which. Each scale is the scale of the evaluated run. A
figure that was not measured reads "not run". The command prints the table and writes it
into the folder --output as Markdown, as CSV and, if any figure was measured, as a
picture. Curves are those of --metric in metrics.jsonl; their --output is a picture, and
the JSON file beside it holds its numbers, which experiments.tables.claims reads.
--table=compiled prints reports of experiments.accelerators.compile.
"""

from collections.abc import Sequence
import contextlib
import csv
import io
import os
import pathlib

from absl import flags

from experiments.engine import command, reports
from experiments.tables import (
  compiled,
  curves,
  figures,
  paper_table,
  run_results,
)
from retrieval.store import store

_CURVES, _COMPILED = 'curves', 'compiled'


def _text(value: run_results.Figure) -> str:
  return (
    f'{value:.4g}' if isinstance(value, float | int) else reports.share(value)
  )


def _cell(source: paper_table.Source | None, runs: run_results.Runs) -> str:
  if source is None:
    return ''
  named = len(runs) > 1 and not source.run
  found = run_results.find_all(source, runs)
  texts = [f'{x} {_text(y)}' if named else _text(y) for x, y in found]
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
  for name, path in runs.items():
    parts.append(f'Scale of {name}: {run_results.describe(path)}.')
  if not runs:
    parts.append('No run was given.')
  return ' '.join([*parts, table.note]).strip()


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
        label = f'ours: {head}' if source.run else f'ours, {name}: {head}'
        if not isinstance(value, float | int):
          value = 100 * value['mean']
        series.setdefault(label, []).append((value, i))
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
  table, root = paper_table.load(name), pathlib.Path(output)
  root.mkdir(parents=True, exist_ok=True)
  heads, body = lines(table, runs)
  files = [root / f'{name}.{ending}' for ending in ('md', 'csv', 'png')]
  paper_table.write_markdown(
    files[0], heads, body, caption(table, runs), table.title
  )
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows([heads, *body])
  store.write_atomically(files[1], text.getvalue().encode())
  return files if plot(table, runs, files[2]) else files[:2]


def show(
  names: Sequence[str],
  runs: run_results.Runs,
  output: str = '',
  metrics: Sequence[str] = ('loss',),
) -> None:
  """Print the tables of these names, and write them if `output` is given."""
  for name in names:
    if name == _CURVES:
      figure = curves.build(runs, metrics)
      curves.print_tables(figure)
      if output:
        figures.draw(figure, pathlib.Path(output))
      continue
    if name == _COMPILED:
      rows = compiled.rows(runs)
      reports.print_table(compiled.HEADS, rows, wrap=True)
      if output:
        path = pathlib.Path(output) / f'{name}.md'
        paper_table.write_markdown(path, compiled.HEADS, rows, '')
      continue
    table = paper_table.load(name)
    reports.print_table(
      *lines(table, runs), table.title, caption(table, runs), wrap=True
    )
    if output:
      print('written:', *write(name, runs, output))


def main(argv: list[str]) -> None:
  """Read the flags and show the tables."""
  if len(argv) > 1:
    raise ValueError(f'Unexpected arguments {argv[1:]}; flags start with --.')
  values = flags.FLAGS
  runs = run_results.parse_runs(values.run)
  if _CURVES in values.table and not runs:
    raise ValueError('--run: expected NAME=DIR of a training run.')
  show(values.table, runs, values.output, values.metric)


if __name__ == '__main__':
  flags.DEFINE_multi_enum(
    'table',
    None,
    [*paper_table.NAMES, _CURVES, _COMPILED],
    'Table; may be repeated.',
  )
  flags.DEFINE_multi_string('run', [], 'NAME=DIR or DIR; once for each run.')
  flags.DEFINE_string('output', '', 'Folder; of curves a picture.')
  flags.DEFINE_multi_string('metric', ['loss'], 'Metric of the curves.')
  flags.mark_flag_as_required('table')
  command.main_of_script(main)
