# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents, bad records and files, common to all readers of corpora."""

import bz2
import codecs
from collections.abc import Iterable, Iterator, Mapping
import contextlib
import dataclasses
import gzip
import io
import json
import lzma
import numbers
import os
import pathlib
from typing import Any, BinaryIO, TypeVar
import zlib

Parser = TypeVar('Parser')
_OPENERS = {'.gz': gzip.open, '.bz2': bz2.open, '.xz': lzma.open}
_FOREIGN = ('.zst', '.zip', '.7z', '.lz4', '.tar', '.tgz', '.parquet')


@dataclasses.dataclass(frozen=True)
class Document:
  """One document."""

  id: str  # unique in its corpus
  title: str  # may be empty
  text: str  # not empty; exactly the source's characters


class BadRecord(ValueError):
  """A record that cannot be a document.

  Attributes:
    reason: category under which the record is counted.
  """

  def __init__(self, reason: str, where: str, message: str):
    super().__init__(f'{where}: {message}')
    self.reason = reason


# A reader yields the place of each record, and the record or its fault.
Records = Iterator[tuple[str, Document | BadRecord]]


@dataclasses.dataclass(frozen=True)
class SourceFile:
  """One file of a corpus."""

  path: pathlib.Path
  name: str  # path below the corpus's folder; it is part of ids


@dataclasses.dataclass(frozen=True)
class Fields:
  """Names of a record's fields; '' for a field that records lack."""

  id: str  # '' makes an id of file and line
  title: str  # '' leaves the title empty
  text: str  # never ''

  def document(
    self, record: Mapping[str, Any], where: str, position: str
  ) -> Document:
    """Make a document of a record; `position` is the id of one without id.

    Raises:
      BadRecord: for a field that is missing or not a string, naming `where`.
    """
    if isinstance(number := record.get(self.id), numbers.Integral) and (
      not isinstance(number, bool)
    ):
      position = str(number)
    elif self.id:
      position = string(record, self.id, where)
    return Document(
      id=position,
      title=string(record, self.title, where) if self.title else '',
      text=string(record, self.text, where),
    )


def field(record: Mapping[str, Any], name: str, where: str) -> Any:
  """Return a record's field, or raise BadRecord."""
  if name in record:
    return record[name]
  message = f'no field {name!r}; the record has {sorted(record)}.'
  raise BadRecord(f'missing field {name}', where, message)


def string(record: Mapping[str, Any], name: str, where: str) -> str:
  """Return a record's field as a string; bytes are decoded from UTF-8."""
  value = field(record, name, where)
  if isinstance(value, bytes):
    return decode(value, f'{where}, field {name!r}')
  if not isinstance(value, str):
    message = f'field {name!r} is {type(value).__name__}, expected a string.'
    raise BadRecord(f'wrong type of {name}', where, message)
  try:
    value.encode()
  except UnicodeEncodeError:
    message = f'field {name!r} holds half a character.'
    raise BadRecord('invalid UTF-8', where, message) from None
  return value


def decode(data: bytes, where: str) -> str:
  """Decode UTF-8, or raise BadRecord."""
  try:
    return data.decode()
  except UnicodeDecodeError as e:
    message = f'byte {e.start} (0x{data[e.start]:02x}) is not UTF-8.'
    raise BadRecord('invalid UTF-8', where, message) from None


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, bytes]]:
  """Yield (line number from 1, line with its end) of a file, unpacked.

  Raises:
    ValueError: when the file cannot be read to its end.
  """
  with open_file(path) as f:
    yield from enumerate(f, start=1)


def text_lines(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
  """Yield (place, line without its end) of every line that is not blank."""
  for number, line in read_lines(path):
    if number == 1:
      line = line.removeprefix(codecs.BOM_UTF8)
    if line.strip():
      yield f'{path}:{number}', line.rstrip(b'\r\n')


def parse_json(data: bytes, where: str, expected: type) -> Any:
  """Parse JSON whose outermost value has the expected type, dict or list."""
  text = decode(data, where)
  try:
    value = json.loads(text)
  except (ValueError, RecursionError) as e:
    raise BadRecord('invalid JSON', where, f'not JSON ({e}).') from None
  return check_type(value, where, expected)


def check_type(value: Any, where: str, expected: type) -> Any:
  """Return a value of JSON if it has the expected type, dict or list."""
  if isinstance(value, expected):
    return value
  wanted = 'a JSON object' if expected is dict else 'a JSON list'
  message = f'expected {wanted}, found {type(value).__name__}.'
  raise BadRecord('invalid JSON', where, message)


def items(record: Any, name: str, where: str) -> list:
  """Return a record's field as a list, or raise ValueError."""
  value = check_type(record, where, dict).get(name)
  if isinstance(value, list):
    return value
  found = type(value).__name__ if name in record else f'only {sorted(record)}'
  raise ValueError(f'{where}: field {name!r}: expected a list, found {found}.')


def objects(
  values: Iterable[Any], path: pathlib.Path
) -> Iterator[tuple[str, dict]]:
  """Yield (place, object) of each value of a file, or raise BadRecord."""
  for number, value in enumerate(values, start=1):
    where = f'{path}, record {number}'
    yield where, check_type(value, where, dict)


def json_lines(path: pathlib.Path) -> Iterator[tuple[str, dict]]:
  """Yield (place, object) of every line that is not blank."""
  for where, line in text_lines(path):
    yield where, parse_json(line, where, dict)


def json_file(path: pathlib.Path, expected: type) -> Any:
  """Parse a file that holds one JSON value."""
  data = b''.join(line for _, line in read_lines(path))
  return parse_json(data.removeprefix(codecs.BOM_UTF8), str(path), expected)


def read_pieces(path: pathlib.Path, size: int) -> Iterator[str]:
  """Yield a file's text, unpacked, in pieces of up to `size` characters.

  Raises:
    ValueError: when the file cannot be read to its end, or is not UTF-8.
  """
  with open_file(path) as f:
    text = io.TextIOWrapper(f, 'utf-8-sig', newline='')
    try:
      while piece := text.read(size):
        yield piece
    except UnicodeDecodeError as e:
      raise BadRecord('invalid UTF-8', str(path), f'not UTF-8 ({e}).') from None


@contextlib.contextmanager
def open_file(path: pathlib.Path) -> Iterator[BinaryIO]:
  """Open a file for reading, unpacked."""
  if path.suffix in _FOREIGN:
    raise ValueError(
      f'{path}: {path.suffix} cannot be read; expected plain text, or one of '
      f'{sorted(_OPENERS)}.'
    )
  try:
    with _OPENERS.get(path.suffix, open)(path, 'rb') as f:
      yield f
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as e:
    raise ValueError(f'{path}: cannot be read to its end ({e}).') from None


def existing(path: str | os.PathLike) -> pathlib.Path:
  """Return the path of a file, or raise FileNotFoundError."""
  path = pathlib.Path(path)
  if not path.is_file():
    raise FileNotFoundError(f'{path}: expected a file to read.')
  return path


def parser_of(path: pathlib.Path, parsers: Mapping[str, Parser]) -> Parser:
  """Choose a file's parser by the end of its name, such as '.jsonl.gz'.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for another end.
  """
  existing(path)
  kind = next((k for k in path.suffixes[-2:] if k in parsers), None)
  if kind is None:
    raise ValueError(
      f'{path}: expected a name that ends in {" or ".join(parsers)}.'
    )
  return parsers[kind]
