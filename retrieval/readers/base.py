# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents, bad records and fields, common to all readers."""

import codecs
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import datetime
import numbers
import pathlib
from typing import Any

import numpy as np

_BRIEF = 300  # characters of a value in a message
# A date is a text such as '2019-06-30'.
Scalar = str | int | float | bool | None


@dataclasses.dataclass(frozen=True)
class Document:
  """One document."""

  id: str  # unique in its corpus
  title: str  # may be empty
  text: str  # not empty; the source's characters
  # further fields, `Scalar` each; None, or no entry, where there is no value
  metadata: Mapping[str, Any] = dataclasses.field(
    default_factory=dict, hash=False
  )


class BadRecord(ValueError):
  """A record that cannot be a document, counted under its `reason`."""

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

  id: str = 'id'  # '' makes an id of file and line
  title: str = 'title'  # '' leaves the title empty
  text: str = 'text'  # never ''
  # further fields that documents keep; None keeps all, of any type
  metadata: Sequence[str] | None = ()

  def document(
    self, record: Mapping[str, Any], where: str, position: str
  ) -> Document:
    """Make a document of a record; `position` is the id of one without id.

    BEIR's '_id' stands for 'id'. Ids and titles may be whole numbers. A title that
    is missing or null is empty, and so is a null text; a list of texts, KILT's, is
    joined. Metadata stand beside the text or in a field 'metadata', BEIR's. BadRecord
    names `where` another field is missing or not a string.
    """
    key = self.id
    if key == 'id' and 'id' not in record and '_id' in record:
      key = '_id'
    if key:
      position = string({key: named(field(record, key, where))}, key, where)
    text = field(record, self.text, where)
    if isinstance(text, list) and all(isinstance(x, str) for x in text):
      text = ''.join(text)
    title = named(record.get(self.title)) if self.title else ''
    texts = {self.title: title, self.text: text}
    texts = {name: '' if x is None else x for name, x in texts.items()}
    return Document(
      id=position,
      title=string(texts, self.title, where),
      text=string(texts, self.text, where),
      metadata=self._metadata(record, where, key),
    )

  def _metadata(
    self, record: Mapping[str, Any], where: str, key: str
  ) -> dict[str, Any]:
    if self.metadata is not None and not self.metadata:
      return {}
    inner = record.get('metadata')
    every = {**(inner if isinstance(inner, Mapping) else {}), **record}
    if self.metadata is None:
      others = every.keys() - {key, self.title, self.text}
      return {name: _plain(every[name]) for name in sorted(others)}
    metadata = {x: _plain(every[x]) for x in self.metadata if x in every}
    check_metadata(metadata, where)
    return metadata


def check_metadata(metadata: Mapping[str, Any], where: str) -> None:
  """Raise BadRecord, naming `where`, for a field that is no scalar."""
  for name, value in metadata.items():
    if not isinstance(value, Scalar):
      kind = type(value).__name__
      message = f'field {name!r} is {kind}, expected a text, number or boolean.'
      raise BadRecord(f'wrong type of {name}', where, message)
    if isinstance(value, str):
      string(metadata, name, where)


def _plain(value: Any) -> Any:
  """Return the value of NumPy's scalars, and the text of bytes and dates (ISO)."""
  if isinstance(value, datetime.date | datetime.time):
    return value.isoformat()
  if isinstance(value, bytes):
    return value.decode(errors='replace')
  return value.item() if isinstance(value, np.generic) else value


def named(value: Any) -> Any:
  """Return the text of a whole number, and other values as they are."""
  whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
  return str(value) if whole else value


def field(record: Mapping[str, Any], name: str, where: str) -> Any:
  """Return a record's field, or raise BadRecord."""
  if name in record:
    return record[name]
  message = f'no field {name!r}; the record has {brief(sorted(record))}.'
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
    raise not_utf8(e, where, f' {e.start}') from None


def not_utf8(e: UnicodeDecodeError, where: str, place: str = '') -> BadRecord:
  """Return the fault of bytes that are not UTF-8; `place` numbers the first one."""
  is_utf16 = e.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
  seems = ', but UTF-16' if is_utf16 else ''
  byte = f'byte{place} (0x{e.object[e.start]:02x})'
  message = f'{byte} is not UTF-8{seems}; convert the file.'
  return BadRecord('invalid UTF-8', where, message)


def brief(value: Any) -> str:
  """Return a value's repr, or its beginning."""
  text = repr(value)
  return text if len(text) <= _BRIEF else f'{text[:_BRIEF]}...'


def check_type(value: Any, where: str, expected: type) -> Any:
  """Return a value of JSON if it has the expected type, dict or list."""
  if isinstance(value, expected):
    return value
  kind = 'object' if expected is dict else 'list'
  message = f'{type(value).__name__}; expected a JSON {kind}.'
  raise BadRecord('invalid JSON', where, message)


def items(record: Any, name: str, where: str) -> list:
  """Return a record's field as a list, or raise ValueError."""
  value = check_type(record, where, dict).get(name)
  if isinstance(value, list):
    return value
  there = type(value).__name__
  if name not in record:
    there = f'only {brief(sorted(record))}'
  raise ValueError(f'{where}: field {name!r}: expected a list, not {there}.')
