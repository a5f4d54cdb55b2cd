# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""HTML of answers with their sources and of explained predictions."""

import html
from typing import Any

from retrieval import text_table

NOTHING = 'no block was found'
SILENT = 'no answer in these documents'
UNSURE = 'no answer that is sure enough'
RUNNER_UPS = ('runner-up', 'logit', 'share', 'source')
_SHOWN = 70  # characters of a document's text


def silence(found: Any, count: int = 5) -> str:
  """Return what stands in place of an answer, with the best sources; '' with one."""
  if not found.answers:
    return NOTHING
  if not found.silent:
    return ''
  sources = dict.fromkeys(answer.source for answer in found.best(count))
  why = SILENT if found.null_is_likelier else UNSURE
  return (
    f'{why} (best share {found.confidence:.2f}, none '
    f'{1 - found.answerable:.2f}); best sources: {"; ".join(sources)}'
  )


def figures(found: Any) -> str:
  """Return logit and share of the best answer, and its probability if measured."""
  first, probability = found.best(1)[0], found.probability
  shown = f'logit {first.score:.2f}, share {first.share:.3f}'
  if probability is not None:
    sets = ', '.join(found.calibration.sets)
    shown += f', right with probability {probability:.2f} (as on {sets})'
  return shown


def answers_html(found: Any, count: int = 5) -> str:
  """Return a question, its answer in its block, and `count` - 1 runner-ups."""
  head = f'<p><b>{html.escape(found.question.question)}</b><br>'
  if shown := silence(found, count):
    return f'{head}{html.escape(shown)}</p>'
  first, *others = found.best(count)
  head += (
    f'<b style="color: green">{html.escape(first.text)}</b> '
    f'({figures(found)})</p>'
  )
  head += block_html(first.record())
  if others:
    head += text_table.to_html(RUNNER_UPS, map(runner_up, others))
  return head


def runner_up(answer: Any) -> tuple[str, ...]:
  """Return the cells of RUNNER_UPS."""
  figures = f'{answer.score:.2f}', f'{answer.share:.3f}'
  return answer.text, *figures, answer.source


def blocks_html(found: Any, count: int = 3) -> str:
  """Return the first blocks; one without an answer is unmarked."""
  best, blocks = {}, found.blocks
  for answer in found.answers:
    best.setdefault(answer.rank, answer)
  shown = []
  for rank, block in enumerate(found.beam[:count].tolist()):
    if block < 0:
      continue
    if rank in best:
      row = best[rank].record()
    else:
      [title], [text] = blocks.titles([block]), blocks.texts([block])
      row = {'title': title, 'text': text, 'span': (0, 0)}
    shown.append(f'<li>{block_html(row)}</li>')
  return f'<ol>{"".join(shown)}</ol>' if shown else f'<p>{NOTHING}</p>'


def block_html(row: dict[str, Any]) -> str:
  """Return title and text of a block, its span marked."""
  (start, end), text = row['span'], row['text']
  before, marked, after = (
    html.escape(part) for part in (text[:start], text[start:end], text[end:])
  )
  marked = f'<mark>{marked}</mark>' if marked else ''
  title = html.escape(row['title'])
  return f'<p><i>{title}</i>: {before}{marked}{after}</p>'


EXPLAINED_COLUMNS = (
  'document',
  'p(z|x)',
  'p(z|x,y)',
  'utility',
  'without it',
  'alone',
)


def explained_rows(found: Any) -> list[tuple[str, ...]]:
  """Return the cells of EXPLAINED_COLUMNS of each document."""
  rows = []
  for row in found.documents:
    text = ' '.join(row['text'].split())[:_SHOWN]
    rows.append(
      (
        f'{row["title"]}: {text}' if text else row['title'],
        f'{row["prior"]:.3f}',
        f'{row["posterior"]:.3f}',
        f'{row["utility"]:+.3f}',
        f'{row["without"] - found.log_prob:+.3f}',
        row['word'],
      )
    )
  return rows


def explained_lines(found: Any) -> list[str]:
  """Return the predictions of each mask, and the answer's log-probabilities."""
  lines = []
  for i, words in enumerate(found.predictions, start=1):
    shown = ', '.join(f'{word} {share:.3f}' for word, share in words)
    lines.append(f'mask {i}: {shown}')
  gain = found.log_prob - found.null_log_prob
  lines.append(
    f'log-probability of {found.answer!r}: {found.log_prob:.3f}, without '
    f'documents {found.null_log_prob:.3f}, so that they gain {gain:+.3f} nats'
  )
  return lines


def explained_html(found: Any) -> str:
  """Return a prediction and a table of its documents."""
  lines = ''.join(f'<br>{html.escape(line)}' for line in explained_lines(found))
  table = text_table.to_html(EXPLAINED_COLUMNS, explained_rows(found))
  return f'<p><b>{html.escape(found.text)}</b>{lines}</p>{table}'
