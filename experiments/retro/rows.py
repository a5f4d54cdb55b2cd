# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of bits per byte, as a table and as results files."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from experiments.engine import evaluations, reports
from retro_jax.evaluation import evaluate as evaluate_lib

OFF, BASELINE = 'RETRO off', 'baseline'  # names of rows


def of(
  name: str, evaluation: evaluate_lib.Evaluation, **facts: Any
) -> evaluations.Row:
  """Return the row of an evaluation."""
  return evaluations.Row(
    name=name,
    values={'': evaluation.nats},
    num_bytes=evaluation.num_bytes,
    facts={**facts, **evaluation.summary()},
  )


def report(
  path: pathlib.Path,
  rows: Sequence[evaluations.Row],
  against: Mapping[str, str],
  *,
  title: str,
  caption: str,
  **content: Any,
) -> None:
  """Write rows and `content` to results files, and print a table of the rows.

  Args:
    against: field -> name of a row, whose bits per byte are subtracted from those of
      the others; None where there is no such row.
  """
  others = {row.name: row for row in rows}
  compared = []
  for row in rows:
    less = dict.fromkeys(against)
    for field, name in against.items():
      if name in others and name != row.name:
        less[field] = row.minus(others[name])
        del less[field]['of_seeds']
    compared.append(dataclasses.replace(row, facts={**row.facts, **less}))
  evaluations.write(path, compared, **content)
  fields = [x for x in against if any(row.facts[x] for row in compared)]
  facts = rows[0].facts
  sizes = f'{facts["documents"]:,} held-out documents'
  sizes += f', {facts["tokens"]:,} tokens, {facts["bytes"]:,} bytes'
  heads = (x.replace('_', ' ') for x in fields)
  reports.print_table(
    ('model', 'bits/byte', *heads, 'token ppl', 'word ppl'),
    [
      (
        row.name,
        f'{row.facts["bits_per_byte"]:.4f}',
        *(_difference(row.facts[x]) for x in fields),
        *(_perplexity(row.facts[f'{x}_perplexity']) for x in ('token', 'word')),
      )
      for row in compared
    ],
    title=f'{title}: {sizes}',
    caption=f'{caption}Interval: 95 % of a paired bootstrap over documents.',
  )


def _difference(less: Mapping[str, float] | None) -> str:
  """Return a difference with its interval on the next line, or ''."""
  return f'{less["mean"]:+.4f}\n{reports.ends(less, "+.4f")}' if less else ''


def _perplexity(x: float) -> str:
  return f'{x:,.2f}' if x < 1e5 else f'{x:.3g}'
