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

_STEP = 1 << 20
_BLANKS = re.compile(r'\s*')
_DECODER = json.JSONDecoder()
_TOKEN = (
  16  # more characters than a number, word or escape that an error may cut
)


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

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for the first value that is no object; and `values`'s errors.
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

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for another kind of file, a malformed line or no line.
  """
  suffix, where = text_files.kind_of(path), ''
  if suffix not in ('.txt', '.jsonl'):
    raise ValueError(f'{path}: expected a name that ends in .txt or .jsonl.')
  for where, line in text_files.text_lines(path, text_files.PROMPT_BYTES):
    yield where, {field: line} if suffix == '.txt' else parse(line, where)
  if not where:
    raise ValueError(f'{path}: no {field}.')


def starts_list(path: str | os.PathLike) -> bool:
  """Whether the first character that is not blank opens a list."""
  with text_files.open_bytes(path) as f:
    start = f.read(_TOKEN << 8).removeprefix(codecs.BOM_UTF8)
  return start.lstrip().startswith(b'[')


def values(
  path: str | os.PathLike,
  key: str = '',
  limit: int = text_files.RECORD_BYTES,
  step: int = _STEP,
) -> Iterator[tuple[str, Any]]:
  """Yield (place, value) of each value of a list.

  Args:
    key: of the list in an object, which is the whole file; '' where the list is.
    limit: most characters of a value.
    step: bytes that are read at once.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for invalid JSON, an incomplete file, or an object without the
      list.
  """
  text = _Text(path, limit, step)
  found, names = not key, []
  if not key:
    yield from text.items()
  for name in text.fields() if key else ():
    names.append(name)
    if name == key and text.next() == '[':
      found = True
      yield from text.items()
    else:
      text.value()
  if not found:
    message = f'field {key!r}: expected a list, found only {base.brief(names)}.'
    raise base.BadRecord(f'missing field {key}', str(path), message)
  if text.next():
    raise text.error('text after the end')


class _Text:
  """The part of a file that is read and not yet taken."""

  def __init__(self, path: str | os.PathLike, limit: int, step: int):
    self._path, self._limit, self._number = path, limit, 1
    self._pieces = text_files.pieces(path, step)
    self._text, self._at = '', 0

  def place(self) -> str:
    return f'{self._path}, record {self._number}'

  def error(self, reason: object) -> base.BadRecord:
    return base.BadRecord('invalid JSON', self.place(), f'not JSON ({reason}).')

  def next(self) -> str:
    """Return the next character that is not blank, '' at the end of the file."""
    while True:
      self._at = _BLANKS.match(self._text, self._at).end()
      if self._at < len(self._text):
        return self._text[self._at]
      if not self._more(1):
        return ''

  def take(self, character: str) -> bool:
    """Step over a character if it is the next one."""
    found = self.next() == character
    self._at += found
    return found

  def expect(self, character: str) -> None:
    if not self.take(character):
      raise self.error(f'expected {character!r}')

  def fields(self) -> Iterator[str]:
    """Yield the names of an object; the caller takes each value."""
    self.expect('{')
    between = False
    while not self.take('}'):
      if between:
        self.expect(',')
      between = True
      name = self.value()
      self.expect(':')
      yield name

  def items(self) -> Iterator[tuple[str, Any]]:
    """Take the values of a list."""
    self.expect('[')
    self._number = 1
    while not (self._number == 1 and self.take(']')):
      yield self.place(), self.value()
      if self.take(']'):
        return
      self.expect(',')

  def value(self) -> Any:
    """Take the next value, whose end may not be read yet."""
    self.next()
    count = 1
    while True:
      reason, end = None, 0
      try:
        value, end = _DECODER.raw_decode(self._text, self._at)
        is_cut = end > len(self._text) - 3  # within a number, 1e+
      except RecursionError as e:
        reason, is_cut = e, False
      except ValueError as e:
        reason = getattr(e, 'msg', e)
        left = len(self._text) - getattr(e, 'pos', -_TOKEN)
        is_cut = left < _TOKEN or str(reason).startswith('Unterminated')
      if is_cut or not reason:
        if (end or len(self._text)) - self._at > self._limit:
          raise text_files.too_long(self.place(), self._limit)
        if is_cut and self._more(count):
          count *= 2
          continue
      if reason:
        raise self.error(reason)
      self._at, self._number = end, self._number + 1
      return value

  def _more(self, count: int) -> bool:
    """Read up to `count` pieces; what is taken is dropped."""
    more = ''.join(itertools.islice(self._pieces, count))
    if more:
      self._text, self._at = self._text[self._at :] + more, 0
    return bool(more)
