# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of evaluations, as a table and as a results file."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from experiments.engine import reports
from retrieval.questions import bootstrap
from retro_jax.evaluation import evaluate as evaluate_lib

OFF, BASELINE = 'RETRO off', 'baseline'  # names of rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One row of a table of evaluations."""

  name: str  # model and kind of retrieval
  evaluation: evaluate_lib.Evaluation
  fields: Mapping[str, Any]  # other JSON values
  # name -> bits per byte less those of another row; None for that row itself
  minus: Mapping[str, bootstrap.Interval | None] = dataclasses.field(
    default_factory=dict
  )
  cells: Sequence[str] = ()  # shown after the name

  def to_json(self) -> dict[str, Any]:
    """The row as JSON values."""
    minus = {k: x and dataclasses.asdict(x) for k, x in self.minus.items()}
    fields = {'name': self.name, **self.fields}
    return fields | minus | self.evaluation.summary()


def report(
  path: pathlib.Path,
  rows: Sequence[Row],
  *,
  title: str,
  caption: str,
  heads: Sequence[str] = (),
  **content: Any,
) -> None:
  """Write rows and `content` to a results file, and print a table of the rows.

  Beside it an .npz file holds the nats of each document, [documents] a row, and
  their `bytes`.

  Args:
    heads: of the rows' own cells.
  """
  written = [row.to_json() for row in rows]
  reports.write_json(path, {'rows': written, **content})
  nats = {row.name: row.evaluation.nats for row in rows}
  size = rows[0].evaluation.num_bytes
  reports.write_arrays(path.with_suffix('.npz'), nats | {'bytes': size})
  one = rows[0].evaluation.summary()
  sizes = f'{one["documents"]:,} held-out documents, {one["tokens"]:,} tokens'
  first, *others = rows[0].minus
  reports.print_table(
    ('model', *heads, *_heads(first), 'token ppl', 'word ppl'),
    [(x.name, *x.cells, *_cells(x, first)) for x in rows],
    title=f'{title}: {sizes}, {one["bytes"]:,} bytes',
    caption=f'{caption}Interval: 95 % of a paired bootstrap over documents.',
    padding=(0, 1, 0, 0),
  )
  for name in others:
    compared = [x for x in rows if x.minus[name]]
    if compared:
      lines = [(x.name, *_cells(x, name)[:3]) for x in compared]
      reports.print_table(('model', *_heads(name)), lines)


def _heads(name: str) -> tuple[str, ...]:
  return 'bits/byte', name.replace('_', ' '), 'interval'


def _cells(row: Row, name: str) -> tuple[str, ...]:
  """Bits per byte, a difference with its interval (or '', '') and perplexities."""
  found, less = row.evaluation, row.minus[name]
  perplexities = found.token_perplexity, found.word_perplexity
  return (
    f'{found.bits_per_byte:.4f}',
    f'{less.mean:+.4f}' if less else '',
    f'{less.low:+.4f} {less.high:+.4f}' if less else '',
    *(f'{x:,.2f}' if x < 1e5 else f'{x:.3g}' for x in perplexities),
  )


def compare(rows: Sequence[Row]) -> list[Row]:
  """Compare rows with RETRO[OFF] and the baseline among them."""
  others = {x.name: x.evaluation for x in rows}

  def minus(x: Row, name: str) -> bootstrap.Interval | None:
    if x.name == name or name not in others:
      return None
    return evaluate_lib.compare(x.evaluation, others[name])

  names = {'minus_off': OFF, 'minus_baseline': BASELINE}
  return [
    dataclasses.replace(x, minus={k: minus(x, y) for k, y in names.items()})
    for x in rows
  ]
