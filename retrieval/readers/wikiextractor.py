# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reader of WikiExtractor's output: <doc> elements, or JSON lines (--json)."""

from collections.abc import Sequence
import re

from retrieval.readers import base, files as files_lib

_FIELDS = base.Fields(id='id', title='title', text='text')
# A title may hold quotes; the attributes before it cannot.
_OPENING = re.compile(
  r'<doc id="([^"]*)"(?: (?!title=)\w+="[^"]*")*(?: title="(.*)")?>\s*$'
)


def read(files: Sequence[base.SourceFile]) -> base.Records:
  """Read either form; each file's first byte tells its form."""
  for file in files:
    _, line = next(base.read_lines(file.path), (0, b''))
    if line.startswith(b'{'):
      yield from files_lib.read_jsonl([file], _FIELDS)
    else:
      yield from _read_elements(file)


def _read_elements(file: base.SourceFile) -> base.Records:
  """Read <doc id= url= title=> ... </doc>, one tag a line."""
  opening, where, body = None, '', []
  for number, line in base.read_lines(file.path):
    here = f'{file.path}:{number}'
    if line.startswith(b'<doc id='):
      if opening is not None:
        yield where, _unclosed(where)
      opening, where, body = line, here, []
    elif line.startswith(b'</doc>'):
      if opening is None:
        yield here, base.BadRecord('stray </doc>', here, 'closes no <doc>.')
      else:
        yield where, _document(opening, body, where)
      opening = None
    elif opening is not None:
      body.append(line)
    elif line.strip():
      yield (
        here,
        base.BadRecord('text outside <doc>', here, 'expected <doc id="...".'),
      )
  if opening is not None:
    yield where, _unclosed(where)


def _unclosed(where: str) -> base.BadRecord:
  return base.BadRecord('unclosed <doc>', where, 'no </doc> follows.')


def _document(
  opening: bytes, body: Sequence[bytes], where: str
) -> base.Document | base.BadRecord:
  try:
    head = _OPENING.match(base.decode(opening, where))
    text = base.decode(b''.join(body), where)
  except base.BadRecord as error:
    return error
  if not head:
    return base.BadRecord(
      'malformed <doc>', where, 'expected <doc id="..." url="..." title="...">.'
    )
  title = head[2] or ''
  # The element frames its text with a heading and an end; JSON lacks both.
  text = text.removeprefix(f'{title}\n\n')
  for end in ('\n\n', '\n'):
    if text.endswith(end):
      text = text.removesuffix(end)
      break
  return base.Document(head[1], title, text)
