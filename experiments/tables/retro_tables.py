# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A table of RETRO's paper, and beside it what was measured here.

  python -m experiments.tables.retro_tables --table=14 --run=small=runs/simplewiki/retro \
    --output=tables

Tables are 3, 4, 5, 13, 14, 15, retrofit and leakage. Each --run=NAME=DIR, or DIR
alone, is a workdir whose evaluation.json, lambada.json, summary.json,
sweep_*.json, leakage.json, retro_qa.json and knn_lm.json are read, as far as they
are there; where the lines of a table are runs of their own (13, 15 and retrofit),
NAME is the line's. Scales are those of the run that was evaluated.
What nobody ran reads "not run". Prints the table and writes it as Markdown, CSV
and, if anything was run, as a picture into --output.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import csv
import io
import json
import math
import os
import pathlib
from typing import Any

from absl import flags
import ml_collections
import numpy as np
import rich.box
import rich.table

from experiments.engine import command
from experiments.engine import progress
from experiments.tables import retro_paper
from retrieval.store import checkpoints
from retrieval.store import store
from retro_jax.data import folder as retro_data

NOT_RUN = 'not run'
# Results whose settings say which run was evaluated.
RESULTS = (
  *('evaluation.json', 'leakage.json', 'lambada.json', 'summary.json'),
  *('retro_qa.json', 'knn_lm.json'),
  *(f'sweep_{name}.json' for name in ('datastore', 'neighbors', 'parts')),
)
Runs = Mapping[str, pathlib.Path]


def parse_runs(values: Sequence[str]) -> dict[str, pathlib.Path]:
  """Name -> folder.

  Args:
    values: NAME=DIR, or DIR, which is named by its last part.

  Raises:
    ValueError: for a folder that is none, or a name given twice.
  """
  runs = {}
  for value in values:
    name, separator, folder = value.partition('=')
    path = pathlib.Path(folder if separator else name)
    name = name if separator else path.resolve().name
    if not path.is_dir():
      raise ValueError(f'--run={value}: expected a folder, NAME=DIR or DIR.')
    if name in runs:
      raise ValueError(f'--run={value}: a run of that name was given before.')
    runs[name] = path
  return runs


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
  """The rows of a results file, [] if it is not there; curves point by point.

  Raises:
    ValueError: when it is no results file.
  """
  if not path.is_file():
    return []
  try:
    rows = json.loads(path.read_text())['rows']
  except (json.JSONDecodeError, KeyError, TypeError):
    raise ValueError(f'{path}: expected a JSON object with "rows".') from None
  return [
    {**row, **point} for row in rows for point in row.get('points') or ({},)
  ]


def _mode(row: Mapping[str, Any]) -> str:
  """What a row is of: on, off, shuffled, oracle, baseline or knn."""
  name = str(row.get('name', ''))
  if name in ('baseline', 'model alone'):  # alone: what a kNN-LM stands on
    return 'baseline'
  if name.lower().startswith('knn'):
    return 'knn'
  if 'retrieval' in row:
    return row['retrieval']
  return 'off' if name.endswith(' off') else 'on'


def _fits(row: Mapping[str, Any], source: retro_paper.Source) -> bool:
  if source.mode and _mode(row) != source.mode:
    return False
  if source.where is None:
    return True
  name, value = source.where
  if isinstance(value, str):
    return row.get(name) == value
  return row.get(name) is not None and math.isclose(row[name], value)


def find(source: retro_paper.Source | None, folder: pathlib.Path) -> float:
  """A figure of a run, NaN where there is none."""
  files = (source.file, source.otherwise) if source else ()
  for file in filter(None, files):
    for row in read_rows(folder / file):
      if _fits(row, source):
        value = row.get(source.field)
        return math.nan if value is None else float(value)
  return math.nan


def ours(row: retro_paper.Row, runs: Runs) -> list[list[tuple[str, float]]]:
  """For each column of ours what the runs have: (name of run, figure)."""
  cells = []
  for source in row.ours:
    found = []
    for name, folder in runs.items():
      if source and source.run in ('', name):
        value = find(source, folder)
        if not math.isnan(value):
          found.append((name, value))
    cells.append(found)
  return cells


def _cell(
  found: Sequence[tuple[str, float]],
  source: retro_paper.Source | None,
  named: bool,
) -> str:
  if source is None:
    return ''
  named = named and not source.run
  texts = [f'{name} {x:.4g}' if named else f'{x:.4g}' for name, x in found]
  return '; '.join(texts) or NOT_RUN


def evaluated(folder: pathlib.Path) -> list[pathlib.Path]:
  """The runs that the results of a folder are of, by what these say.

  Args:
    folder: with results, of which some may be of the folder's own run.

  Returns:
    Workdirs; the folder alone where no result tells.
  """
  found = []
  for name in RESULTS:
    rows = read_rows(folder / name)
    if not rows:
      continue
    settings = json.loads((folder / name).read_text()).get('settings', {})
    for told in (settings, settings.get('evaluate', {}), rows[0]):
      for key in ('workdir', 'model_workdir'):
        if key in told:
          found.append(pathlib.Path(told[key] or folder))
  return list({path.resolve(): path for path in found}.values()) or [folder]


def describe(folder: pathlib.Path) -> str:
  """The scale of what a folder has results of: model, training, datastore."""
  runs = evaluated(folder)
  if [run.resolve() for run in runs] == [folder.resolve()]:
    return _scale(folder)
  return '; '.join(f'of {run}, {_scale(run)}' for run in runs)


def _scale(run: pathlib.Path) -> str:
  """Parameters, steps, tokens and datastore, as far as the checkpoint tells."""
  try:
    saved = checkpoints.find(str(run))
  except (FileNotFoundError, ValueError):
    return 'no checkpoint there, scale unknown'
  c = saved.config
  parts = [f'{_count(saved.params) / 1e6:,.1f} M parameters']
  if c.get('retrofit_from'):
    parts.append(f'RETROfit of {c.retrofit_from}')
  if 'qa' in c:
    # Rows of questions have other lengths than sequence_chunks.
    parts.append(f'{saved.step:,} steps of {c.batch_size:,} questions')
  else:
    length = c.sequence_chunks * c.model.chunk_length
    tokens = saved.step * c.batch_size * length
    parts += [f'{saved.step:,} steps', f'{tokens / 1e6:,.1f} M tokens']
  if 'qa' in c and c.retrieval and c.qa.passages:
    parts.append(f'{c.qa.num_passages} passages a question, from files')
  elif c.retrieval:
    parts.append(_datastore(c, run))
  return ', '.join(parts)


def _datastore(config: ml_collections.ConfigDict, run: pathlib.Path) -> str:
  """How large what a run retrieves from is, if it still lies there."""
  data = retro_data.DataFolder.of(config, run)
  try:
    chunks = data.chunks('train')
  except (FileNotFoundError, ValueError):
    return f'datastore unknown: none in {data.root}'
  tokens = int(chunks.lengths(np.arange(chunks.num_chunks)).sum())
  return f'datastore of {chunks.num_chunks:,} chunks, {tokens:,} tokens'


def _count(tree: Any) -> int:
  if isinstance(tree, Mapping):
    return sum(_count(x) for x in tree.values())
  return math.prod(tree.shape)


def lines(
  table: retro_paper.Table, runs: Runs
) -> tuple[list[str], list[list[str]]]:
  """The table as text: heads, and the cells of each line."""
  heads = ['', *(f'paper: {x}' for x in table.columns)]
  heads += [f'ours: {x}' for x in table.ours]
  body = []
  for row in table.rows:
    found = ours(row, runs)
    cells = [
      _cell(x, source, len(runs) > 1)
      for x, source in zip(found, row.ours, strict=True)
    ]
    body.append([row.name, *row.paper, *cells])
  return heads, body


def caption(table: retro_paper.Table, runs: Runs) -> str:
  """Scales of the paper's figures and of ours, and what else to know."""
  parts = [f'Scale of the paper: {table.scale}.']
  parts += [
    f'Scale of {name}: {describe(path)}.' for name, path in runs.items()
  ]
  if not runs:
    parts.append('No run was given.')
  if table.note:
    parts.append(table.note)
  return ' '.join(parts)


def markdown(
  title: str,
  heads: Sequence[str],
  body: Sequence[Sequence[str]],
  below: str,
) -> str:
  """The table in Markdown."""
  rows = [heads, ['---'] * len(heads), *body]
  text = ''.join('| ' + ' | '.join(row) + ' |\n' for row in rows)
  return f'{title}\n\n{text}\n{below}\n'


def _number(text: str) -> float:
  try:
    return float(text)
  except ValueError:
    return math.nan


def plot(table: retro_paper.Table, runs: Runs, path: pathlib.Path) -> bool:
  """Draws every line that has figures of ours, the paper's beside them.

  Args:
    table: which one.
    runs: whose figures.
    path: of the picture.

  Returns:
    Whether there was anything to draw.
  """
  drawn = [(row, ours(row, runs)) for row in table.rows]
  drawn = [(row, found) for row, found in drawn if any(found)]
  if not drawn:
    return False
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot

  figure, axes = pyplot.subplots(
    figsize=(8, 1.5 + 0.45 * len(drawn)), layout='constrained'
  )
  series: dict[str, list[tuple[float, int]]] = {}
  for i, (row, found) in enumerate(drawn):
    for head, text in zip(table.columns, row.paper, strict=True):
      if not math.isnan(_number(text)):
        series.setdefault(f'paper: {head}', []).append((_number(text), i))
    for head, cell, source in zip(table.ours, found, row.ours, strict=True):
      for name, value in cell if source and source.drawn else ():
        label = head if row.ours[0] and row.ours[0].run else f'{name}: {head}'
        series.setdefault(f'ours, {label}', []).append((value, i))
  for label, points in series.items():
    marker = 'o' if label.startswith('ours') else '|'
    axes.plot(*zip(*points, strict=True), marker, label=label)
  axes.set_yticks(range(len(drawn)), [row.name for row, _ in drawn])
  axes.invert_yaxis()
  axes.grid(alpha=0.3)
  axes.set_title(table.title)
  figure.legend(loc='outside lower center', ncols=3, fontsize='small')
  figure.savefig(path, dpi=110, bbox_inches='tight')
  pyplot.close(figure)
  return True


def write(
  name: str,
  table: retro_paper.Table,
  runs: Runs,
  output: str | os.PathLike,
) -> list[pathlib.Path]:
  """Writes the table as .md, .csv and, if anything was run, .png."""
  root = pathlib.Path(output)
  root.mkdir(parents=True, exist_ok=True)
  heads, body = lines(table, runs)
  stem = f'table{name}' if name.isdigit() else name
  files = [root / f'{stem}.{ending}' for ending in ('md', 'csv', 'png')]
  text = markdown(table.title, heads, body, caption(table, runs))
  store.write_atomically(files[0], text.encode())
  rows = io.StringIO()
  csv.writer(rows, lineterminator='\n').writerows([heads, *body])
  store.write_atomically(files[1], rows.getvalue().encode())
  return files if plot(table, runs, files[2]) else files[:2]


def make_table(table: retro_paper.Table, runs: Runs) -> rich.table.Table:
  """The table for the terminal."""
  heads, body = lines(table, runs)
  shown = rich.table.Table(
    *heads,
    title=table.title,
    caption=caption(table, runs),
    caption_justify='left',
    box=rich.box.SIMPLE_HEAD,
  )
  for row in body:
    shown.add_row(*row)
  return shown


def main(argv: list[str]) -> None:
  """Prints the tables and writes them."""
  if len(argv) > 1:
    raise ValueError(f'Unexpected arguments {argv[1:]}; flags start with --.')
  runs = parse_runs(flags.FLAGS.run)
  for name in flags.FLAGS.table:
    table = retro_paper.TABLES[name]
    progress.console().print(make_table(table, runs))
    if flags.FLAGS.output:
      files = write(name, table, runs, flags.FLAGS.output)
      print('written:', *files)


if __name__ == '__main__':
  flags.DEFINE_multi_enum(
    'table', None, list(retro_paper.TABLES), 'Which; may be given again.'
  )
  flags.DEFINE_multi_string('run', [], 'NAME=DIR or DIR; once for each run.')
  flags.DEFINE_string('output', '', 'Folder for Markdown, CSV and pictures.')
  flags.mark_flag_as_required('table')
  command.main_of_script(main)
