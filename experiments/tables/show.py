# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Print a table of RETRO's or REALM's paper beside our figures.

  python -m experiments.tables.show --table=retro_14 --run=small=runs/simplewiki/retro \
    --output=tables
  python -m experiments.tables.show --table=realm_1 --run=orqa=runs/orqa

Each --run=NAME=DIR, or DIR alone, is the workdir of a run with the results files of the
evaluating commands. Where each line of a table is a run, NAME is the
line's; the table's note says which. Each scale is the scale of the evaluated run. A
figure that was not measured reads "not run". The command prints the table and writes it
into the folder --output as Markdown and as CSV.
"""

from collections.abc import Mapping, Sequence
import csv
import dataclasses
import io
import pathlib

from absl import flags

from experiments.engine import command, reports
from experiments.tables import paper_table
from retrieval.store import output_files

Runs = Mapping[str, pathlib.Path]


@dataclasses.dataclass(frozen=True)
class Table:
  """A table to print and to write."""

  heads: Sequence[str]
  rows: Sequence[Sequence[str]]
  title: str
  caption: str


def parse_runs(values: Sequence[str]) -> dict[str, pathlib.Path]:
  """Return the folder of each run by the run's name.

  Args:
    values: NAME=DIR, or DIR alone, whose last part is then the name.

  Raises:
    ValueError: if a folder does not exist, or a name comes twice.
  """
  runs = {}
  for value in values:
    name, separator, folder = value.partition('=')
    path = pathlib.Path(folder if separator else name)
    name = name if separator else path.resolve().name
    if not path.is_dir():
      raise ValueError(f'--run={value}: expected a folder, NAME=DIR or DIR.')
    if name in runs:
      raise ValueError(f'--run={value}: a second run of that name.')
    runs[name] = path
  return runs


def _cell(source: paper_table.Source | None, runs: Runs) -> str:
  if source is None:
    return ''
  named = len(runs) > 1 and not source.run
  texts = [
    (f'{name} ' if named else '')
    + (f'{x:.4g}' if isinstance(x, float | int) else reports.share(x))
    for name, x in paper_table.find(source, runs)
  ]
  return '; '.join(texts) or paper_table.NOT_RUN


def build(name: str, runs: Runs) -> Table:
  """Return a table of a paper beside our figures."""
  table = paper_table.load(name)
  heads = ['', *(f'paper: {x}' for x in table.columns)]
  heads += [f'ours: {x}' for x in table.ours]
  rows = [
    [row.name, *row.paper, *(_cell(source, runs) for source in row.ours)]
    for row in table.rows
  ]
  parts = [f'Scale of the paper: {table.scale}.']
  for run, path in runs.items():
    parts.append(f'Scale of {run}: {paper_table.scale_of(path)}.')
  if not runs:
    parts.append('No run was named.')
  caption = ' '.join([*parts, table.note]).strip()
  return Table(heads, rows, table.title, caption)


def show(name: str, runs: Runs, output: str = '') -> list[pathlib.Path]:
  """Print a table; write it into a folder, unless ''; return the files."""
  table = build(name, runs)
  reports.print_table(
    table.heads, table.rows, table.title, table.caption, wrap=True
  )
  if not output:
    return []
  folder = pathlib.Path(output)
  folder.mkdir(parents=True, exist_ok=True)
  lines = paper_table.markdown(table.heads, table.rows)
  page = '\n'.join([table.title, '', *lines, '', table.caption, ''])
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows([table.heads, *table.rows])
  files = [folder / f'{name}.md', folder / f'{name}.csv']
  for file, content in zip(files, (page, text.getvalue()), strict=True):
    output_files.write(file, content.encode())
  print('written:', *files)
  return files


def main(argv: list[str]) -> None:
  """Read the flags and show the tables."""
  del argv
  options = flags.FLAGS
  runs = parse_runs(options.run)
  for name in options.table:
    show(name, runs, options.output)


if __name__ == '__main__':
  about = 'Table; may be repeated.'
  flags.DEFINE_multi_enum('table', None, paper_table.NAMES, about)
  flags.DEFINE_multi_string('run', [], 'NAME=DIR or DIR; once for each run.')
  command.define_output('output', '', 'Folder to write.', is_folder=True)
  flags.mark_flag_as_required('table')
  command.main_of_script(main)
