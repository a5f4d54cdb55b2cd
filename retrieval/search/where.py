# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search among passages of documents with metadata that fit a filter.

A filter says of each field what its value may be, and all of it must hold:

  {'year': (2010, 2020), 'lang': ['en', 'de'], 'date': ('2019-01', None)}

A pair is a range of numbers or dates with both ends, None for an open one; a list or a
set holds values of which the document has one; anything else is the value. Dates are
texts such as '2019', '2019-01' or '2019-01-31', and an end of a range covers what begins
with it: up to '2019' is up to the end of that year. With a time of day, '2019-01-31
10:00', they compare as instants, in UTC where no offset is named. A document without a
value, or with an empty text or NaN, is in no range; None stands for it in a list. Texts
and whole numbers that are numbers or years compare as such.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
import datetime
import functools
import json
import re
from typing import Any

import numpy as np

from retrieval.readers import base
from retrieval.searchers import subset as subset_lib
from retrieval.text import passages as passages_lib

Where = Mapping[str, Any]
Fits = Callable[[base.Scalar], bool]  # whether a document's value fits
DATES = ('date', 'year')  # fields of `until`
_DATE = re.compile(
  r'\d{4}(-\d\d(-\d\d'
  r'(?P<time>[T ]\d\d:\d\d(?P<seconds>:\d\d(?P<part>\.\d+)?)?'
  r'(Z|[+-]\d\d:?\d\d)?)?)?)?'
)
_DAY = len('2019-01-31')
_MOMENT = datetime.timedelta(microseconds=1)
_CACHED = 16  # filters
_AT_ONCE = 1 << 20  # passages
_FORM = "a filter such as {'year': (2010, 2020), 'lang': ['en', 'de']}"


def parse(text: str) -> dict[str, Any]:
  """Read a filter as a config holds it, a Python dict; {} of ''.

  Raises:
    ValueError: for anything else.
  """
  try:
    where = ast.literal_eval(text.strip() or '{}')
    _canonical(where)
  except (SyntaxError, TypeError, ValueError, RecursionError) as error:
    raise ValueError(f'where={text!r}: {error}; expected {_FORM}.') from None
  return where


def spell(where: Where | None) -> str:
  """Inverse of `parse`; ValueError as of `kept`."""
  fields = _canonical(where or {})
  pairs = {x: tuple(y) if ends else y for x, (ends, y) in fields.items()}
  return repr(pairs) if pairs else ''


def some(
  passages: passages_lib.Passages, where: str, name: str
) -> subset_lib.Subset | None:
  """Return the passages that a config's filter keeps, None without a filter.

  Raises:
    ValueError: as of `parse` and `kept`, and for no passage, naming the field `name`.
  """
  if not where:
    return None
  subset = kept(passages, parse(where))
  if not len(subset.rows):
    raise ValueError(
      f'{name}={where}: no passage of {len(passages):,} fits; expected some.'
    )
  return subset


def until(
  where: Where, passages: passages_lib.Passages, date: str
) -> dict[str, Any]:
  """Add a last date to a filter, of the first of the fields `DATES` that is there.

  Raises:
    ValueError: for no such field, one that the filter names, or no date.
  """
  if not _is_date(date):
    raise ValueError(f'as_of={date!r}: expected a date such as 2019-01-31.')
  field = next((x for x in DATES if x in _names(passages)), None)
  if field is None:
    raise ValueError(
      f'as_of={date!r}: the documents have the metadata {_names(passages)}, '
      f'expected one of {[*DATES]}.'
    )
  if field in where:
    raise ValueError(f'as_of={date!r}: the filter names {field!r}, too.')
  return {**where, field: (None, date)}


def kept(passages: passages_lib.Passages, where: Where) -> subset_lib.Subset:
  """Return the passages of documents that fit a filter; the latest are cached.

  Raises:
    ValueError: for a field that documents lack, naming those they have, and for values
      of another type than theirs.
  """
  return _subset(passages, json.dumps(_canonical(where)))


@functools.lru_cache(_CACHED)
def _subset(passages: passages_lib.Passages, where: str) -> subset_lib.Subset:
  fields, names = json.loads(where), _names(passages)
  if unknown := sorted({*fields} - {*names}):
    raise ValueError(
      f'where: no field {unknown[0]!r}; the documents have {names or "none"}'
      f'{"" if names else ", prepare them with corpus.metadata"}.'
    )
  mask = None
  for name, (ends, values) in fields.items():
    fits = _range(name, *values) if ends else _one_of(name, values)
    masks = [
      np.array([fits(x) for x in had], bool)[codes]
      for codes, had in passages.tokens.metadata.shards(name)
    ]
    of_field = np.concatenate(masks)
    mask = of_field if mask is None else mask & of_field
  if mask is None:
    return subset_lib.Subset(np.ones(len(passages), bool), where)
  steps = range(0, len(passages), _AT_ONCE)
  parts = [
    mask[passages.documents(np.arange(i, min(i + _AT_ONCE, len(passages))))]
    for i in steps
  ]
  return subset_lib.Subset(np.concatenate(parts), where)


def _names(passages: passages_lib.Passages) -> list[str]:
  return [*passages.tokens.metadata.names] if passages.tokens else []


def _canonical(where: Where) -> dict[str, tuple[bool, list[base.Scalar]]]:
  """Return whether each field has a range, and its ends or values."""
  if not isinstance(where, Mapping):
    raise ValueError(f'where={where!r}: expected {_FORM}.')
  fields = {}
  for name, value in sorted(where.items()):
    ends = isinstance(value, tuple)
    if ends and len(value) != 2:
      raise ValueError(
        f'where[{name!r}]={value!r}: expected both ends of a range.'
      )
    several = ends or isinstance(value, list | set | frozenset | np.ndarray)
    values = [_plain(x) for x in (value if several else [value])]
    for one in values:
      if not isinstance(one, base.Scalar):
        raise ValueError(
          f'where[{name!r}]={value!r}: expected texts, numbers or booleans.'
        )
    kinds = {_kind(x) for x in values if x is not None}
    if len(kinds) > 1:
      raise ValueError(
        f'where[{name!r}]={value!r}: {" and ".join(sorted(kinds))}, expected '
        'values of one type.'
      )
    if not ends:
      values = sorted({*values}, key=repr)
    fields[str(name)] = ends, values
  return fields


def _plain(value: Any) -> Any:
  """Return a scalar; None for '' and NaN, which are no values."""
  if isinstance(value, datetime.date):
    value = value.isoformat()
  value = value.item() if isinstance(value, np.generic) else value
  return None if value == '' or value != value else value


def _is_date(text: str) -> bool:
  """Whether a text is a date that exists, with or without a time of day."""
  try:
    return bool(_DATE.fullmatch(text)) and bool(_instants(text))
  except ValueError:
    return False


def _instants(text: str) -> tuple[datetime.datetime, datetime.datetime]:
  """Return the first instant of a date, and the last that begins with it."""
  parts = _DATE.fullmatch(text)
  first = datetime.datetime.fromisoformat(text + '2000-01-01'[len(text) :])
  if first.tzinfo is None:
    first = first.replace(tzinfo=datetime.UTC)
  length = datetime.timedelta(days=0 if parts['time'] else 1)
  if parts['time'] and not parts['part']:
    length = datetime.timedelta(seconds=1 if parts['seconds'] else 60)
  return first, first + max(length - _MOMENT, 0 * length)


def _kind(value: base.Scalar) -> str:
  kinds = ((bool, 'true or false'), (str, 'texts'))
  return next((x for of, x in kinds if isinstance(value, of)), 'numbers')


def _range(name: str, low: base.Scalar, high: base.Scalar) -> Fits:
  """Return whether a document's value lies in a range."""
  ends = [x for x in (low, high) if x is not None]
  kind = _kind(ends[0]) if ends else ''
  if kind == 'texts' and all(map(_is_date, ends)):
    kind = 'dates'
  if kind not in ('', 'numbers', 'dates'):
    raise ValueError(
      f'where: field {name!r}: {(low, high)} is no range of numbers or of dates '
      'that exist; values are written as a list.'
    )

  def fits(value):
    value = _as(value, kind, name)
    return (
      value is not None
      and (low is None or not _below(value, low))
      and (high is None or not _above(value, high))
    )

  if len(ends) == 2 and _above(low, high):
    raise ValueError(
      f'where: field {name!r}: {(low, high)} ends before it begins.'
    )
  return fits


def _below(value: base.Scalar, low: base.Scalar) -> bool:
  """Whether a number or date comes before the first end of a range."""
  if _has_time(low):
    return _instants(value)[0] < _instants(low)[0]
  return value < low


def _above(value: base.Scalar, high: base.Scalar) -> bool:
  """Whether a number or date comes after the last end, which covers a whole day."""
  if _has_time(high):
    return _instants(value)[0] > _instants(high)[1]
  return (value[: len(high)] if isinstance(high, str) else value) > high


def _has_time(value: base.Scalar) -> bool:
  return isinstance(value, str) and _is_date(value) and len(value) > _DAY


def _one_of(name: str, values: Sequence[base.Scalar]) -> Fits:
  """Return whether a document's value is among some."""
  kind = next((_kind(x) for x in values if x is not None), '')

  def key(value):
    return _instants(value)[0] if _has_time(value) else value

  keys = {*map(key, values)}
  return lambda value: key(_as(value, kind, name)) in keys


def _as(value: base.Scalar, kind: str, name: str) -> base.Scalar:
  """Return a document's value as the filter compares it; None without one."""
  value = _plain(value)
  if value is None or not kind:
    return value
  has = _kind(value)
  if kind == 'dates' and has == 'numbers' and 1000 <= value <= 9999:
    value, has = f'{value:.0f}', 'texts'
  if kind == 'dates' and has == 'texts' and _is_date(value):
    return value
  for number in (int, float) if (kind, has) == ('numbers', 'texts') else ():
    try:
      return _plain(number(value))
    except ValueError:
      pass
  if kind == has:
    return value
  raise ValueError(
    f'where: field {name!r} has the value {base.brief(value)}, which does not '
    f'compare with {kind}.'
  )
