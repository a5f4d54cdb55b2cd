# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The one way in which text files are opened: corpora, questions, runs, prompts.

A file is UTF-8, with or without a byte order mark, and may be packed as .gz, .bz2 or
.xz; its first bytes tell how. A line ends in LF or CRLF. What is read of a file at
once is bounded, however large its lines are.
"""

import bz2
import codecs
from collections.abc import Iterator
import contextlib
import gzip
import lzma
import os
import pathlib
import re
from typing import BinaryIO
import zlib

from retrieval.readers import base

RECORD_BYTES = 1 << 26  # most bytes of a record, unpacked
PROMPT_BYTES = 1 << 22  # most bytes of a text that a model reads
PACKED = ('.gz', '.bz2', '.xz')
_OPENERS = {
  b'\x1f\x8b': gzip.open,
  b'BZh': bz2.open,
  b'\xfd7zXZ\0': lzma.open,
}
_FOREIGN = ('.zst', '.zip', '.7z', '.lz4', '.tar', '.tgz', '.parquet')
_STEP = 1 << 20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def existing(path: str | os.PathLike) -> pathlib.Path:
  """Return the path of a file, or raise FileNotFoundError."""
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'{path}: expected a file to read.')
  return path


def kind_of(path: pathlib.Path) -> str:
  """Return the end of a name in lower case, such as '.jsonl' of 'A.JSONL.gz'."""
  suffixes = [x.lower() for x in path.suffixes]
  return next((x for x in reversed(suffixes) if x not in PACKED), '')


def line_name(path: pathlib.Path, where: str) -> str:
  """Return FILE:NUMBER, the id of the line or record at a place of a file."""
  return f'{path.name}:{re.search("[0-9]+$", where)[0]}'


@contextlib.contextmanager
def open_bytes(path: pathlib.Path) -> Iterator[BinaryIO]:
  """Open a file for reading, unpacked.

  Raises:
    ValueError: when it cannot be read to its end, or is packed in another way.
  """
  suffix = path.suffix.lower()
  if suffix in _FOREIGN:
    raise ValueError(
      f'{path}: {suffix} cannot be read; expected plain text, or one of {PACKED}.'
    )
  try:
    with open(path, 'rb') as raw:
      head = raw.peek(8)
      opener = next(
        (f for x, f in _OPENERS.items() if head.startswith(x)), None
      )
      if opener is None and head and suffix in PACKED:
        raise ValueError(f'{path}: cannot be read to its end (not {suffix}).')
      with opener(raw) if opener else raw as f:
        yield f
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as e:
    raise ValueError(f'{path}: cannot be read to its end ({e}).') from None


def lines(
  path: pathlib.Path, limit: int = RECORD_BYTES
) -> Iterator[tuple[str, str | base.BadRecord]]:
  """Yield (place, line without its end, or what is wrong with it) of each line.

  Raises:
    ValueError: when the file cannot be read to its end.
  """
  number = 0
  with open_bytes(path) as f:
    while line := f.readline(limit + 2):
      number += 1
      where, body = f'{path}:{number}', line.rstrip(b'\r\n')
      if len(body) > limit:
        while not line.endswith(b'\n') and (line := f.readline(_STEP)):
          pass
        yield where, too_long(where, limit)
        continue
      try:
        yield where, _decode(body, path, number)
      except base.BadRecord as error:
        yield where, error


def text_lines(
  path: str | os.PathLike, limit: int = RECORD_BYTES
) -> Iterator[tuple[str, str]]:
  """Yield (place, line without its end) of every line that is not blank.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for the first line that is too long or not UTF-8; when the file
      cannot be read to its end.
  """
  for where, line in lines(existing(path), limit):
    if isinstance(line, base.BadRecord):
      raise line
    if line and not line.isspace():
      yield where, line


def read(path: pathlib.Path, limit: int = RECORD_BYTES) -> str:
  """Return a whole file, its lines ended by LF; raise as `text_lines` does."""
  parts, size = [], 0
  with open_bytes(path) as f:
    while part := f.read(_STEP):
      parts.append(part)
      size += len(part)
      if size > limit:
        raise too_long(str(path), limit)
  return _decode(b''.join(parts), path, 1).replace('\r\n', '\n')


def pieces(path: pathlib.Path, size: int = _STEP) -> Iterator[str]:
  """Yield a file's text in pieces of up to `size` bytes; raise as `read` does."""
  decoder, line = codecs.getincrementaldecoder('utf-8-sig')(), 1
  with open_bytes(path) as f:
    data = b'\n'
    while data:
      data = f.read(size)
      try:
        text = decoder.decode(data, final=not data)
      except UnicodeDecodeError as e:
        line += e.object.count(b'\n', 0, e.start)
        raise _not_utf8(f'{path}:{line}', e, '') from None
      line += data.count(b'\n')
      if text:
        yield text


def _decode(data: bytes, path: pathlib.Path, number: int) -> str:
  """Decode some lines of a file, from its line `number` on."""
  if number == 1:
    data = data.removeprefix(codecs.BOM_UTF8)
  try:
    text = data.decode()
  except UnicodeDecodeError as e:
    line = number + data.count(b'\n', 0, e.start)
    raise _not_utf8(f'{path}:{line}', e) from None
  if '\0' in text:
    where = f'{path}:{number + text[: text.index(chr(0))].count(chr(10))}'
    message = 'a NUL character; expected text in UTF-8 (UTF-16 holds them).'
    raise base.BadRecord('NUL character', where, message)
  return text


def _not_utf8(
  where: str, e: UnicodeDecodeError, place: str | None = None
) -> base.BadRecord:
  if place is None:
    line_start = e.object.rfind(b'\n', 0, e.start) + 1
    place = f' {e.start - line_start}'
  seems = ', but UTF-16; convert the file' if e.object[:2] in _UTF16 else ''
  message = f'byte{place} (0x{e.object[e.start]:02x}) is not UTF-8{seems}.'
  return base.BadRecord('invalid UTF-8', where, message)


def too_long(where: str, limit: int) -> base.BadRecord:
  """Return the fault of a record of more than `limit` bytes."""
  message = f'longer than {limit:,} bytes, the most for a record.'
  return base.BadRecord('too long', where, message)
