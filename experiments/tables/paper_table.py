# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of the papers, read from JSON, and figures of runs for them.

Each JSON file whose name begins with a system is one table: RETRO's (Borgeaud et al.
2021, arXiv 2112.04426) and REALM's (Guu et al. 2020). Figures are strings as printed
in the paper; '-' marks a figure that the paper does not give. A row names the source
of each of our figures (`ours`), or the run or the `where` in which the table's
`sources` are looked for.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import fnmatch
import json
import math
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from realm_jax.data import folder as realm_data
from retrieval.store import checkpoints, manifests
from retrieval.text import data_folder
from retro_jax.data import folder as retro_data

NOT_RUN = 'not run'
_FOLDER = pathlib.Path(__file__).parent
NAMES = tuple(
  sorted(
    x.stem for y in ('realm', 'retro') for x in _FOLDER.glob(f'{y}_*.json')
  )
)
# A number, or {mean, low, high} of a share.
Figure = float | Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Source:
  """Place of a figure of ours in the results files of a run."""

  field: str = 'bits_per_byte'  # field of a results row
  # on, off or baseline for RETRO with retrieval, RETRO without retrieval and
  # the baseline; knn for the kNN-LM; '' for the first row of any mode
  mode: str = 'on'
  file: str = 'evaluation.json'  # results file in the run's folder
  # other fields of the row: a number, or a pattern of the text ('*' for any)
  where: Mapping[str, float | str] = dataclasses.field(default_factory=dict)
  run: str = ''  # name of the run that has the figure; '' for any run
  otherwise: str = ''  # file that is read if `file` lacks the figure


@dataclasses.dataclass(frozen=True)
class PaperRow:
  """A line of a table."""

  name: str  # name in the paper, or the name of another line
  paper: Sequence[str]  # the paper's figures, one for each column
  # sources of our figures, one for each column of ours; None for an empty cell
  ours: Sequence[Source | None]


@dataclasses.dataclass(frozen=True)
class PaperTable:
  """A table of a paper."""

  title: str  # subject of the table
  columns: Sequence[str]  # headings of the paper's figures
  ours: Sequence[str]  # headings of our figures
  scale: str  # model, training and data of the paper's figures
  rows: Sequence[PaperRow]  # lines of the table
  note: str = ''  # further remarks on the comparison


def load(name: str) -> PaperTable:
  """Read a table by the name of its file, one of `NAMES`."""
  text = (_FOLDER / f'{name}.json').read_text(encoding='utf-8')
  content = json.loads(text)
  sources, rows = content.pop('sources', []), []
  for row in content.pop('rows'):
    chosen = {key: row[key] for key in ('run', 'where') if key in row}
    places = row.get('ours', [x | chosen for x in sources] if chosen else [])
    ours = [
      x if x is None else Source(**x)
      for x in places or [None] * len(content['ours'])
    ]
    rows.append(PaperRow(row['name'], row['paper'], ours))
  return PaperTable(rows=rows, **content)


def read_results(
  path: pathlib.Path,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Return the content of a results file and its rows; empty if it is missing.

  A curve gives one row for each point.
  """
  if not path.is_file():
    return {}, []
  content = manifests.read_object(path)
  rows = content.get('rows', [])
  points = [{**x, **point} for x in rows for point in x.get('points') or ({},)]
  return content, points


def _mode(row: Mapping[str, Any]) -> str:
  """Mode of a results row: on, off, shuffled, oracle, baseline or knn."""
  name = str(row.get('name', ''))
  if name in ('baseline', 'model alone'):  # alone: without the kNN-LM's store
    return 'baseline'
  if name.lower().startswith('knn'):
    return 'knn'
  return row.get('retrieval', 'off' if name.endswith(' off') else 'on')


def _fits(value: Any, expected: float | str) -> bool:
  if value is None:
    return False
  if isinstance(expected, str):
    return fnmatch.fnmatchcase(str(value), expected)
  return math.isclose(value, expected)


def find(
  source: Source | None, runs: Mapping[str, pathlib.Path]
) -> list[tuple[str, Figure]]:
  """Return (name of run, figure) for each run that has a figure."""
  figures = []
  for name, folder in runs.items():
    if source is None or source.run not in ('', name):
      continue
    row = next(
      (
        row
        for file in filter(None, (source.file, source.otherwise))
        for row in read_results(folder / file)[1]
        if source.mode in ('', _mode(row))
        and all(_fits(row.get(x), y) for x, y in source.where.items())
      ),
      {},
    )
    if row.get(source.field) is not None:
      figures.append((name, row[source.field]))
  return figures


def markdown(
  heads: Sequence[str], rows: Sequence[Sequence[str]], rule: str = ''
) -> list[str]:
  """Return the lines of a table in Markdown."""
  head, *body = ['| ' + ' | '.join(row) + ' |' for row in (heads, *rows)]
  return [head, rule or '| ' + ' | '.join(['---'] * len(heads)) + ' |', *body]


def scale_of(folder: pathlib.Path) -> str:
  """Describe the scale of a folder's results: model, training, datastore."""
  evaluated = {}  # workdirs that the results name; by default the folder itself
  for path in sorted(folder.glob('*.json')):
    content, rows = read_results(path)
    settings = content.get('settings', {}) if rows else {}
    for fields in (settings, *rows[:1]):
      for key in ('workdir', 'model_workdir'):
        if key in fields:
          run = pathlib.Path(fields[key] or folder)
          evaluated[run.resolve()] = run
  if [*evaluated] in ([], [folder.resolve()]):
    return _scale(folder)
  return '; '.join(f'of {run}, {_scale(run)}' for run in evaluated.values())


def _scale(run: pathlib.Path) -> str:
  """Parameters, steps, tokens and datastore, read from the run's checkpoint."""
  try:
    saved = checkpoints.find(str(run))
  except (FileNotFoundError, ValueError):
    return 'no checkpoint there, scale unknown'
  c = saved.config
  count = sum(math.prod(x.shape) for x in jax.tree.leaves(saved.params))
  parts = [f'{count / 1e6:,.1f} M parameters']
  if c.get('retrofit_from'):
    parts.append(f'RETROfit of {c.retrofit_from}')
  if 'blocks' in c or 'qa' in c:  # rows of questions have other lengths
    parts.append(f'{saved.step:,} steps of {c.batch_size:,}')
  else:
    tokens = saved.step * c.batch_size * c.sequence_chunks
    tokens *= c.model.chunk_length
    parts += [f'{saved.step:,} steps', f'{tokens / 1e6:,.1f} M tokens']
  if 'qa' in c and c.retrieval and c.qa.passages:
    parts.append(f'{c.qa.num_passages} passages a question, from files')
  elif 'blocks' in c or (
    c.retrieval and c.get('qa', {}).get('reader') != 'closed_book'
  ):
    parts.append(_datastore(c, run))
  return ', '.join(parts)


def _datastore(config: ml_collections.ConfigDict, run: pathlib.Path) -> str:
  """Size of the datastore that a run retrieves from, if it still exists."""
  folder = realm_data if 'blocks' in config else retro_data
  data = folder.DataFolder(data_folder.DataFolder.of(config, run).root)
  try:
    if folder is realm_data:
      count, length = data.blocks.num_blocks, config.blocks.max_length
      return f'{count:,} blocks of at most {length} wordpieces'
    chunks = data.chunks('train')
  except (FileNotFoundError, ValueError):
    return f'datastore unknown: none in {data.root}'
  tokens = int(chunks.lengths(np.arange(chunks.num_chunks)).sum())
  return f'datastore of {chunks.num_chunks:,} chunks, {tokens:,} tokens'
