# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers with their sources: as records, for the terminal, for notebooks."""

from collections.abc import Sequence
import html
from typing import Any

import numpy as np
import rich.console
import rich.markup
import rich.padding
import rich.table
import rich.text

from experiments.open_qa import answers as qa_answers
from retrieval.text import blocks as blocks_lib

_MARK = 'bold black on bright_yellow'
_BRACKETS = ('[[', ']]')  # in place of the mark, where there is no color
_NOTHING = 'no block was found'


def describe(
  answer: qa_answers.Answer, blocks: blocks_lib.BlockStore
) -> dict[str, Any]:
  """An answer and where it stands, as JSON values.

  Args:
    answer: a span.
    blocks: where it lies.

  Returns:
    answer, its exact characters; score, a logit; share, of the likelihood of all
    spans that were kept; title and document (its id); block (its number), text and
    span, [first, past-last] character of the answer in it.
  """
  text, span = answer.highlight(blocks)
  number = int(blocks.documents(np.asarray([answer.block]))[0])
  return {
    'answer': answer.text,
    'score': answer.score,
    'share': answer.probability,
    'title': blocks.titles([answer.block])[0],
    'document': blocks.tokens.document_id(number),
    'block': answer.block,
    'text': text,
    'span': list(span),
  }


def record(
  found: qa_answers.Answered, blocks: blocks_lib.BlockStore, count: int = 5
) -> dict[str, Any]:
  """A line of a predictions file, which experiments.open_qa.score reads, too.

  Args:
    found: a question with its answers.
    blocks: where these lie.
    count: answers in all.

  Returns:
    id, question and prediction; `describe` of the best answer, if there is one;
    runner_ups, the same of the others.
  """
  rows = [describe(answer, blocks) for answer in found.answers[:count]]
  line = {
    'id': found.question.id,
    'question': found.question.question,
    'prediction': found.text,
  }
  return line | (rows[0] if rows else {}) | {'runner_ups': rows[1:]}


def print_answers(
  found: qa_answers.Answered,
  blocks: blocks_lib.BlockStore,
  console: rich.console.Console,
  count: int = 5,
) -> None:
  """Prints a question, its answer in its block, and the runner-ups."""
  console.print(rich.text.Text(found.question.question, style='bold'))
  rows = [describe(answer, blocks) for answer in found.answers[:count]]
  if not rows:
    console.print(f'  {_NOTHING}')
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


def answers_html(
  found: qa_answers.Answered, blocks: blocks_lib.BlockStore, count: int = 5
) -> str:
  """A question, its answer in its block, and the runner-ups, for a notebook."""
  rows = [describe(answer, blocks) for answer in found.answers[:count]]
  lines = [f'<p><b>{html.escape(found.question.question)}</b><br>']
  if not rows:
    return f'{lines[0]}{_NOTHING}</p>'
  best = rows[0]
  lines.append(
    f'<b style="color: green">{html.escape(best["answer"])}</b> '
    f'(score {best["score"]:.2f}, share {best["share"]:.3f})</p>'
  )
  lines.append(_block_html(best))
  others = ''.join(
    f'<tr><td>{html.escape(row["answer"])}</td><td>{row["score"]:.2f}</td>'
    f'<td>{row["share"]:.3f}</td><td>{html.escape(row["title"])}</td></tr>'
    for row in rows[1:]
  )
  if others:
    names = ('runner-up', 'score', 'share', 'title')
    head = ''.join(f'<th>{name}</th>' for name in names)
    lines.append(f'<table><tr>{head}</tr>{others}</table>')
  return ''.join(lines)


def blocks_html(
  found: qa_answers.Answered, blocks: blocks_lib.BlockStore, count: int = 3
) -> str:
  """The best retrieved blocks, each with the best of the answers in it.

  Args:
    found: a question with its answers.
    blocks: where they lie.
    count: blocks to show.

  Returns:
    HTML; a block without an answer that was kept is shown unmarked.
  """
  best: dict[int, qa_answers.Answer] = {}
  for answer in found.answers:
    best.setdefault(answer.rank, answer)
  shown = []
  for rank, block in enumerate(found.beam[:count].tolist()):
    if block < 0:
      continue
    if rank in best:
      row = describe(best[rank], blocks)
    else:
      [title], [text] = blocks.titles([block]), blocks.texts([block])
      row = {'title': title, 'text': text, 'span': (0, 0)}
    shown.append(f'<li>{_block_html(row)}</li>')
  return f'<ol>{"".join(shown)}</ol>' if shown else f'<p>{_NOTHING}</p>'


def _block_html(row: dict[str, Any]) -> str:
  (start, end), text = row['span'], row['text']
  before, marked, after = (
    html.escape(part) for part in (text[:start], text[start:end], text[end:])
  )
  marked = f'<mark>{marked}</mark>' if marked else ''
  title = html.escape(row['title'])
  return f'<p><i>{title}</i>: {before}{marked}{after}</p>'
