# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of the papers, read from JSON, and the Markdown of a table.

Each JSON file beside this module is one table: RETRO's (Borgeaud et al. 2021,
arXiv 2112.04426) and REALM's (Guu et al. 2020). Figures are strings as printed
in the paper; '-' marks a figure that the paper does not give.
"""

from collections.abc import Sequence
import dataclasses
import functools
import json
import pathlib

from retrieval.store import store

NOT_RUN = 'not run'
_FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Source:
  """Place of a figure of ours in the results files of a run."""

  field: str = 'bits_per_byte'  # field of a results row, such as bits_per_byte
  # on, off or baseline for RETRO with retrieval, RETRO without retrieval and
  # the baseline; knn for the kNN-LM; '' for the first row of any mode
  mode: str = 'on'
  file: str = 'evaluation.json'  # results file in the run's folder
  # (name, value) of another field that the row must have
  where: tuple[str, float | str] | None = None
  run: str = ''  # name of the run that has the figure; '' for any run
  otherwise: str = ''  # file that is read if `file` lacks the figure
  drawn: bool = True  # whether the figure belongs on the picture's axis


@dataclasses.dataclass(frozen=True)
class PaperRow:
  """A line of a table."""

  name: str  # name in the paper, or the name of a line of our own
  paper: Sequence[str]  # the paper's figures, one for each column
  # sources of our figures, one for each column of ours; None for an empty cell
  ours: Sequence[Source | None] = ()
  run: str = ''  # name of the line for --row; '' if we have no such system
  # retriever and encoder of the system that `run` names
  system: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class PaperTable:
  """A table of a paper."""

  title: str  # subject of the table
  columns: Sequence[str]  # headings of the paper's figures
  rows: Sequence[PaperRow]  # lines of the table
  ours: Sequence[str] = ()  # headings of our figures
  scale: str = ''  # model, training and data of the paper's figures
  note: str = ''  # further remarks on the comparison


@functools.cache
def load(name: str) -> PaperTable:
  """Read a table of a paper by the name of its file, such as retro_13."""
  path = _FOLDER / f'{name}.json'
  content = json.loads(path.read_text(encoding='utf-8'))
  rows = content.pop('rows')
  for row in rows:
    ours = row.get('ours', ())
    row['ours'] = [x if x is None else Source(**x) for x in ours]
  return PaperTable(rows=[PaperRow(**row) for row in rows], **content)


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
