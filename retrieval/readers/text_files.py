# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Text files: corpora, questions, runs and prompts are opened here.

A file is UTF-8, with or without a byte order mark, and may be packed as .gz, .bz2,
.xz or .zst; its first bytes tell how. A line ends in LF or CRLF. What is read of a file at
once is bounded, however large its lines are.
"""

import codecs
from collections.abc import Callable, Iterator
import contextlib
import gzip
import io
import lzma
import os
import pathlib
import re
from typing import Any, BinaryIO
import zlib

import pyarrow as pa

from retrieval.readers import base

RECORD_BYTES = 1 << 26  # most bytes of a record, unpacked
PROMPT_BYTES = 1 << 22  # most bytes of a text that a model reads
PACKED = ('.gz', '.bz2', '.xz', '.zst')


class _Xz(io.RawIOBase):
  """All streams of an .xz file; Python's own ends at a damaged one."""

  mode = 'rb'

  def __init__(self, raw: BinaryIO):
    self._raw, self._stream = raw, lzma.LZMADecompressor()

  def readable(self) -> bool:
    return True

  def readinto(self, buffer: Any) -> int:
    size = len(buffer)
    while True:
      data = b''
      if self._stream.eof:
        data = self._stream.unused_data.lstrip(b'\0')  # between streams
        while not data and (more := self._raw.read(_STEP)):
          data = more.lstrip(b'\0')
        if not data:
          return 0
        self._stream = lzma.LZMADecompressor()
      elif self._stream.needs_input and not (data := self._raw.read(_STEP)):
        raise EOFError('it ends within a stream')
      if part := self._stream.decompress(data, size):
        buffer[: len(part)] = part
        return len(part)


def _opener(codec: str) -> Callable[[BinaryIO], BinaryIO]:
  return lambda raw: io.BufferedReader(pa.CompressedInputStream(raw, codec))


_OPENERS = {
  rb'\x1f\x8b': gzip.open,
  rb'BZh[1-9](?:1AY|\x17rE)': _opener('bz2'),
  rb'\xfd7zXZ\0': lambda raw: io.BufferedReader(_Xz(raw)),
  rb'\x28\xb5\x2f\xfd': _opener('zstd'),
  rb'[\x50-\x5f]\x2a\x4d\x18': _opener('zstd'),  # a frame to skip
}
_FOREIGN = ('.zip', '.7z', '.lz4', '.tar', '.tgz')
TABLES = ('.parquet', '.arrow')
_STEP = 1 << 20  # bytes that are read at once


def unpacked(path: str | os.PathLike) -> pathlib.Path:
  """Return the name of a file in lower case, 'a.jsonl' of 'b/A.JSONL.gz'."""
  name = pathlib.Path(pathlib.Path(path).name.lower())
  while name.suffix in (*PACKED, *_FOREIGN):
    name = name.with_suffix('')
  return name


def line_name(where: str) -> str:
  """Return FILE:NUMBER, the id of the line or record at a place."""
  return pathlib.Path(where).name.replace(', record ', ':')


@contextlib.contextmanager
def open_bytes(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Open a file for reading, unpacked.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: when it cannot be read to its end, or is packed in another way.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'{path}: expected a file to read.')
  suffix = path.suffix.lower()
  if suffix in (*_FOREIGN, *TABLES):
    raise ValueError(
      f'{path}: {suffix} cannot be read; expected plain text, or one of {PACKED}.'
    )
  try:
    with open(path, 'rb') as raw:
      head = raw.peek(8)
      openers = [f for start, f in _OPENERS.items() if re.match(start, head)]
      if head and suffix in PACKED and not openers:
        raise ValueError(f'{path}: cannot be read to its end (not {suffix}).')
      with openers[0](raw) if openers else raw as f:
        yield f
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as e:
    raise ValueError(f'{path}: cannot be read to its end ({e}).') from None


def lines(
  path: str | os.PathLike, limit: int = RECORD_BYTES
) -> Iterator[tuple[str, str | base.BadRecord]]:
  """Yield (place, line without its end, or its fault) of each line."""
  number = 0
  with open_bytes(path) as f:
    most = limit + len(codecs.BOM_UTF8 + b'\r\n')
    while line := f.readline(most):
      number += 1
      where, body = f'{path}:{number}', line.rstrip(b'\r\n')
      if number == 1:
        body = body.removeprefix(codecs.BOM_UTF8)
      is_cut = len(line) == most and not line.endswith(b'\n')
      if len(body) > limit or is_cut:
        while not line.endswith(b'\n') and (line := f.readline(_STEP)):
          pass
        yield where, too_long(where, limit)
        continue
      try:
        yield where, _checked(base.decode(body, where), where)
      except base.BadRecord as error:
        yield where, error


def text_lines(
  path: str | os.PathLike, limit: int = RECORD_BYTES
) -> Iterator[tuple[str, str]]:
  """Yield (place, line without its end) of every line that is not blank.

  ValueError for the first line that is too long or not UTF-8.
  """
  for where, line in lines(path, limit):
    if isinstance(line, base.BadRecord):
      raise line
    if line and not line.isspace():
      yield where, line


def pieces(path: str | os.PathLike) -> Iterator[str]:
  """Yield a file's text in pieces of at most 1 MiB; raise as `text_lines`."""
  decoder, number = codecs.getincrementaldecoder('utf-8-sig')(), 1
  with open_bytes(path) as f:
    data = b'\n'
    while data:
      data = f.read(_STEP)
      try:
        text = decoder.decode(data, final=not data)
      except UnicodeDecodeError as e:
        number += e.object.count(b'\n', 0, e.start)
        raise base.not_utf8(e, f'{path}:{number}') from None
      number += data.count(b'\n')
      if text:
        yield text


def read(path: str | os.PathLike, limit: int = RECORD_BYTES) -> str:
  """Return a whole file, its lines ended by LF; raise as `text_lines` does."""
  parts, size = [], 0
  for piece in pieces(path):
    parts.append(piece)
    size += len(piece)
    if size > limit:
      raise too_long(str(path), limit)
  return _checked(''.join(parts), str(path)).replace('\r\n', '\n')


def _checked(text: str, where: str) -> str:
  if '\0' in text:
    message = 'a NUL character; expected text in UTF-8 (UTF-16 holds them).'
    raise base.BadRecord('NUL character', where, message)
  return text


def too_long(where: str, limit: int) -> base.BadRecord:
  """Return the fault of a record of more than `limit` bytes."""
  message = (
    f'longer than {limit:,} bytes (in a corpus: corpus.max_record_bytes).'
  )
  return base.BadRecord('too long', where, message)
