# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of JSON records: a line each, or in a list; one record is held at a time."""

import codecs
from collections.abc import Iterator
import itertools
import json
import os
import re
from typing import Any

from retrieval.readers import base, text_files

_HEAD = 1 << 12  # bytes or characters within which a list begins
_BLANKS = re.compile(r'\s*')
_LISTS = r'(?:[^][]*\[[^][]*\])*?'  # before the list that is looked for
_FIRST, _NEXT = re.compile(r'\s*(\])?'), re.compile(r'\s*(?:(\])|,)')
_DECODER = json.JSONDecoder()
_END = object()
_TOKEN = 16  # more characters than a number, word or escape takes


def parse(line: str, where: str) -> dict[str, Any]:
  """Parse a line that holds a JSON object, or raise BadRecord."""
  try:
    value = json.loads(line)
  except (ValueError, RecursionError) as e:
    message = f'not JSON ({e}); expected an object a line.'
    raise base.BadRecord('invalid JSON', where, message) from None
  return base.check_type(value, where, dict)


def read(path: str | os.PathLike, key: str = '') -> Iterator[tuple[str, dict]]:
  """Yield (place, object) of each line, of a list, or of the list `key` of an object.

  ValueError for the first value that is no object.
  """
  if key or starts_list(path):
    for where, value in values(path, key):
      yield where, base.check_type(value, where, dict)
  else:
    for where, line in text_files.text_lines(path):
      yield where, parse(line, where)


def read_prompts(
  path: str | os.PathLike, field: str
) -> Iterator[tuple[str, dict]]:
  """Yield (place, object) of each line: {field: line} of .txt, or of .jsonl.

  ValueError for another kind of file, a malformed line or no line.
  """
  suffix, where = text_files.unpacked(path).suffix, ''
  if suffix not in ('.txt', '.jsonl'):
    raise ValueError(f'{path}: expected a name that ends in .txt or .jsonl.')
  for where, line in text_files.text_lines(path, text_files.PROMPT_BYTES):
    yield where, {field: line} if suffix == '.txt' else parse(line, where)
  if not where:
    raise ValueError(f'{path}: no {field}.')


def starts_list(path: str | os.PathLike) -> bool:
  """Whether the first character that is not blank opens a list."""
  with text_files.open_bytes(path) as f:
    start = f.read(_HEAD).removeprefix(codecs.BOM_UTF8)
  return start.lstrip().startswith(b'[')


def values(
  path: str | os.PathLike,
  key: str = '',
  limit: int = text_files.RECORD_BYTES,
) -> Iterator[tuple[str, Any]]:
  """Yield (place, value) of each value of a list.

  Args:
    key: of the list in an object, which is the whole file; '' where the list is.
    limit: most characters of a value.
  """
  pieces, text = text_files.pieces(path), ''
  while len(text) < _HEAD and (piece := next(pieces, '')):
    text += piece
  head = rf'\s*\{{{_LISTS}[^][]*"{key}"\s*:\s*\[' if key else r'\s*\['
  if not (start := re.match(head, text)):
    message = f'expected a list{key and f" in field {key!r}"}.'
    raise base.BadRecord('invalid JSON', str(path), message)
  at, number, value = start.end(), 0, None
  while value is not _END:
    number += 1
    where, count = f'{path}, record {number}', 1
    while True:
      try:
        (value, end), error = _next_value(text, at, first=number == 1), None
      except (ValueError, RecursionError) as e:
        error, end = getattr(e, 'msg', e), getattr(e, 'pos', 0)
        if str(error).startswith('Unterminated'):
          end = len(text)
      if end < len(text) - _TOKEN:
        break  # more text would not change the value
      if end - at > limit:
        raise text_files.too_long(where, limit)
      if not (more := ''.join(itertools.islice(pieces, count))):
        break
      text, at, count = text[at:] + more, 0, 2 * count
    if error:
      raise base.BadRecord('invalid JSON', where, f'not JSON ({error}).')
    if value is not _END:
      yield where, value
    at = end
  last = ''
  for piece in itertools.chain([text[at:]], pieces):
    last = piece.strip()[-1:] or last
  if last != ('}' if key else ''):
    raise base.BadRecord('invalid JSON', where, 'not JSON (a false end).')


def _next_value(text: str, at: int, first: bool) -> tuple[Any, int]:
  """Return the next value of a list and its end; `_END` after the last one."""
  mark = (_FIRST if first else _NEXT).match(text, at)
  at = _BLANKS.match(text, mark.end() if mark else at).end()
  if not mark:
    raise json.JSONDecodeError("expected ','", text, at)
  return (_END, at) if mark[1] else _DECODER.raw_decode(text, at)
