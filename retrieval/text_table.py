# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of plain text, by which results show themselves in a terminal."""

from collections.abc import Sequence


def shorten(text: str, most: int = 60) -> str:
  """Return a text on one line of at most `most` characters."""
  line = ' '.join(text.split())
  return line if len(line) <= most else f'{line[: most - 4]} ...'


def lines(
  heads: Sequence[str], rows: Sequence[Sequence[str]], most: int = 60
) -> str:
  """Return a table, a line for each row; cells are cut at `most` characters."""
  table = [[shorten(cell, most) for cell in row] for row in (heads, *rows)]
  widths = [max(map(len, column)) for column in zip(*table, strict=True)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    ).rstrip()
    for row in table
  )
