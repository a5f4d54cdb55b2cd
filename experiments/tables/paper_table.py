# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of the papers, read from JSON.

Each JSON file whose name begins with a system is one table: RETRO's (Borgeaud et al.
2021, arXiv 2112.04426) and REALM's (Guu et al. 2020). Figures are strings as printed
in the paper; '-' marks a figure that the paper does not give. A row names the source
of each of our figures (`ours`), or the run or the `where` in which the table's
`sources` are looked for.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import json
import pathlib
from typing import Any

from retrieval.store import store

NOT_RUN = 'not run'
_FOLDER = pathlib.Path(__file__).parent
NAMES = tuple(
  sorted(
    x.stem for y in ('realm', 'retro') for x in _FOLDER.glob(f'{y}_*.json')
  )
)


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
  drawn: bool = True  # whether the figure belongs on the picture's axis


@dataclasses.dataclass(frozen=True)
class PaperRow:
  """A line of a table."""

  name: str  # name in the paper, or the name of a line of our own
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


@functools.cache
def load(name: str) -> PaperTable:
  """Read a table by the name of its file, one of `NAMES`."""
  text = (_FOLDER / f'{name}.json').read_text(encoding='utf-8')
  content = json.loads(text)
  sources = content.pop('sources', [])
  rows = [_row(x, sources, len(content['ours'])) for x in content.pop('rows')]
  return PaperTable(rows=rows, **content)


def _row(
  row: Mapping[str, Any], sources: Sequence[Mapping[str, Any]], width: int
) -> PaperRow:
  chosen = {key: row[key] for key in ('run', 'where') if key in row}
  found = row.get('ours', [x | chosen for x in sources] if chosen else [])
  ours = [x if x is None else Source(**x) for x in found or [None] * width]
  return PaperRow(row['name'], row['paper'], ours)


def write_markdown(
  path: pathlib.Path,
  heads: Sequence[str],
  body: Sequence[Sequence[str]],
  caption: str,
  title: str = '',
) -> None:
  """Write a table in Markdown, the title above it and the caption below it."""
  rows = [heads, ['---'] * len(heads), *body]
  table = ''.join('| ' + ' | '.join(row) + ' |\n' for row in rows)
  above = f'{title}\n\n' if title else ''
  store.write_atomically(path, f'{above}{table}\n{caption}\n'.encode())
