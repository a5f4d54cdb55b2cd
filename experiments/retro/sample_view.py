# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Samples as text, printed when they are whole or while they are written."""

from collections.abc import Sequence

import rich.box
import rich.console
import rich.padding
import rich.rule
import rich.table
from rich.text import Text

from retrieval import tokenization
from retro_jax.data import samples as samples_lib
from retro_jax.views import samples as views


def _shorten(text: str, most: int = 240) -> str:
  """The text on one line, of at most so many characters."""
  line = ' '.join(text.split())
  return line if len(line) <= most else line[: most - 4] + ' ...'


def show(
  console: rich.console.Console,
  samples: Sequence[views.TextSample],
) -> None:
  """Print samples: each chunk, then what it retrieved for what follows it."""
  for i, sample in enumerate(samples, start=1):
    console.print(_title(i, len(samples), sample.id))
    for chunk in sample.chunks:
      text = Text(chunk.prompt, style='bold')
      text.append(chunk.written, style='not bold')
      console.print(text)
      _show_neighbors(console, chunk)


def _title(number: int, total: int, name: str) -> rich.rule.Rule:
  title = f'sample {number} of {total}'
  return rich.rule.Rule(Text(f'{title}: {name}' if name else title))


def _show_neighbors(console, chunk: views.TextChunk) -> None:
  if not chunk.ids:
    return
  table = rich.table.Table(box=None, padding=(0, 1), header_style='dim')
  table.add_column(chunk.unit, justify='right')
  table.add_column('from', style='cyan')
  table.add_column('retrieved', style='dim')
  for score, title, neighbor in zip(
    chunk.shown_scores, chunk.titles, chunk.neighbors, strict=True
  ):
    table.add_row(score, Text(title), Text(_shorten(neighbor)))
  console.print(rich.padding.Padding(table, (0, 0, 1, 4)))


def show_table(
  console: rich.console.Console, samples: Sequence[views.TextSample]
) -> None:
  """Print a row for each sample of a file of prompts."""
  table = rich.table.Table('id', 'prompt', 'completion', box=rich.box.SIMPLE)
  for sample in samples:
    cells = sample.id, _shorten(sample.prompt, 60), _shorten(sample.completion)
    table.add_row(*map(Text, cells))
  console.print(table)


class Stream:
  """Prints samples while they are written, neighbors before the token that sees them."""

  def __init__(
    self,
    console: rich.console.Console,
    tokenizer: tokenization.Tokenizer,
    names: Sequence[str],
  ):
    """Take the ids of the prompts, '' for none."""
    self._console, self._tokenizer = console, tokenizer
    self._names, self._number = list(names), 0
    self._waiting: list[str] = []  # the prompt's chunks, not yet printed

  def take(self, event: samples_lib.Event) -> None:
    """Print what an event tells."""
    if isinstance(event, samples_lib.Started):
      name, total = self._names[self._number], len(self._names)
      self._number += 1
      self._console.print(_title(self._number, total, name))
      self._waiting = views.prompt_texts(event.sample, self._tokenizer)
      return
    if isinstance(event, samples_lib.Read):
      self._print_prompt(1)
      self._console.print()
      chunk = views.chunk_text('', '', event.neighbors, self._tokenizer)
      _show_neighbors(self._console, chunk)
      return
    self._print_prompt(len(self._waiting))
    self._print(event.text)
    if isinstance(event, samples_lib.Finished):
      self._console.print()

  def _print_prompt(self, count: int) -> None:
    for text in self._waiting[:count]:
      self._print(text, style='bold')
    del self._waiting[:count]

  def _print(self, text: str, style: str = '') -> None:
    self._console.print(Text(text, style=style), end='', soft_wrap=True)
