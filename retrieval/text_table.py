# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of results, in a terminal or in a notebook."""

from collections.abc import Iterable, Sequence
import html

_MOST_LINES = 40


class Short:
  """Base of results: `str` is the whole text, `repr` at most 40 lines of it."""

  __slots__ = ()

  def __repr__(self) -> str:
    """Return the first lines, and the number of others."""
    text = str(self).splitlines()
    if len(text) > _MOST_LINES:
      others = len(text) - _MOST_LINES + 1
      text[_MOST_LINES - 1 :] = [
        f'... {others:,} more lines; print() shows all'
      ]
    return '\n'.join(text)


def shorten(text: str, most: int = 60) -> str:
  """Return a text on one line of at most `most` characters."""
  line = ' '.join(text.split())
  return line if len(line) <= most else f'{line[: most - 4]} ...'


def lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Return a table, a line for each row; long cells are cut."""
  table = [[shorten(cell) for cell in row] for row in (heads, *rows)]
  widths = [max(map(len, column)) for column in zip(*table, strict=True)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) for cell, width in zip(row, widths, strict=True)
    ).rstrip()
    for row in table
  )


def to_html(
  heads: Iterable[str], rows: Iterable[Iterable[str]], caption: str = ''
) -> str:
  """Return a table of HTML."""
  parts = [f'<caption>{html.escape(caption)}</caption>'] if caption else []
  for number, row in enumerate((heads, *rows)):
    tag = 'td' if number else 'th'
    cells = (f'<{tag}>{html.escape(cell)}</{tag}>' for cell in row)
    parts.append(f'<tr>{"".join(cells)}</tr>')
  return f'<table>{"".join(parts)}</table>'
