# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What a table of a paper is made of: figures as printed, and where ours stand."""

from collections.abc import Sequence
import dataclasses

Paper = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Source:
  """Where a figure of ours stands.

  Attributes:
    field: of a row, such as bits_per_byte.
    mode: on, off, baseline or shuffled for RETRO with retrieval, without, its baseline
      and the control; '' takes the first row of any.
    file: of the run's folder.
    otherwise: file that is read where `file` has no such figure.
    where: what else the row must say, as (name, value).
    run: name of the run that has it; '' for any.
    drawn: whether it belongs on the picture's axis.
  """

  field: str = 'bits_per_byte'
  mode: str = 'on'
  file: str = 'evaluation.json'
  where: tuple[str, float | str] | None = None
  run: str = ''
  otherwise: str = ''
  drawn: bool = True


@dataclasses.dataclass(frozen=True)
class Row:
  """One line of a table.

  Attributes:
    name: as the paper calls it.
    paper: its figures, by the table's columns.
    ours: where ours stand, by the table's columns of ours; None is a cell that
      has nothing of ours.
  """

  name: str
  paper: Paper
  ours: Sequence[Source | None]


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of the paper beside ours.

  Attributes:
    title: what it shows.
    columns: of the paper's figures.
    ours: columns of ours.
    rows: its lines.
    scale: at which scale the paper measured.
    note: what else to know.
  """

  title: str
  columns: Paper
  ours: Paper
  rows: Sequence[Row]
  scale: str
  note: str = ''
