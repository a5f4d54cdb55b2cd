# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers with their sources, for the terminal."""

from collections.abc import Sequence

import rich.console
import rich.markup
import rich.padding
import rich.table
import rich.text

from realm_jax.serving import answers, views

_MARK = 'bold black on bright_yellow'
_BRACKETS = ('[[', ']]')  # instead of the mark, without color


def print_answers(
  found: answers.Answered,
  console: rich.console.Console,
  count: int = 5,
) -> None:
  """Print a question, its answer in its block, and the runner-ups."""
  console.print(rich.text.Text(found.question.question, style='bold'))
  rows = [answer.record() for answer in found.answers[:count]]
  if not rows:
    console.print(f'  {views.NOTHING}')
    return
  best = rows[0]
  console.print(
    rich.text.Text.assemble(
      ('  ' + best['answer'], 'bold green'),
      f'   score {best["score"]:.2f}, share {best["share"]:.3f}',
    )
  )
  source = f'{best["title"]} (document {best["document"]})'
  console.print(rich.text.Text('  ' + source, style='italic'))
  marked = _marked(best['text'], best['span'], console)
  console.print(rich.padding.Padding(marked, (0, 0, 0, 4)))
  if len(rows) == 1:
    return
  table = rich.table.Table('runner-up', 'score', 'share', 'title', 'document')
  for row in rows[1:]:
    table.add_row(
      rich.markup.escape(row['answer']),
      f'{row["score"]:.2f}',
      f'{row["share"]:.3f}',
      rich.markup.escape(row['title']),
      rich.markup.escape(row['document']),
    )
  console.print(rich.padding.Padding(table, (0, 0, 0, 2), expand=False))


def _marked(
  text: str, span: Sequence[int], console: rich.console.Console
) -> rich.text.Text:
  start, end = span
  if not console.is_terminal or console.no_color:
    opened, closed = _BRACKETS
    text = f'{text[:start]}{opened}{text[start:end]}{closed}{text[end:]}'
    return rich.text.Text(text)
  marked = rich.text.Text(text)
  marked.stylize(_MARK, start, end)
  return marked
