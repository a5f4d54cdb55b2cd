# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Explained predictions of REALM for the terminal (Guu et al. 2020, Table 3)."""

import rich.markup
import rich.table

from experiments.engine import progress
from realm_jax.serving import explain, views


def print_explained(found: explain.Explained) -> None:
  """Print an explanation as a table."""
  console = progress.console()
  console.print(found.text, style='bold', markup=False, highlight=False)
  for line in views.explained_lines(found):
    console.print(f'  {line}', markup=False, highlight=False)
  table = rich.table.Table(*views.EXPLAINED_COLUMNS)
  for row in views.explained_rows(found):
    table.add_row(*map(rich.markup.escape, row))
  console.print(table)
