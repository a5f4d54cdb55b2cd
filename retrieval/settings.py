# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings: frozen dataclasses with annotations that limit each field.

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class Settings:
    batch_size: settings.Size = 8
    rate: Annotated[float, settings.Range(0, 1)] = 0.1
    rule: Literal['substring', 'dpr'] = 'dpr'

`build` fills a dataclass and its sections from a config; a refused value ends in one
line with the field's full name, the value and what was expected. Add
`__post_init__ = settings.check` where code constructs the dataclass by itself.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
import numbers
import types
import typing
from typing import Annotated, Any, Literal, TypeVar

_T = TypeVar('_T')
# An unbounded whole number still fits numpy's int64.
_LARGEST = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Range:
  """Bounds of a number; infinity and NaN are outside, unless a bound is inf."""

  low: int | float = -_LARGEST
  high: int | float = _LARGEST
  above: bool = False  # whether `low` itself is outside
  below: bool = False  # whether `high` itself is outside

  def holds(self, value: int | float) -> bool:
    """Whether a number is inside; a NaN never is."""
    over = value > self.low if self.above else value >= self.low
    return over and (value < self.high if self.below else value <= self.high)

  def __str__(self) -> str:
    parts = []
    if self.low > -_LARGEST:
      parts.append(f'{"above" if self.above else "at least"} {self.low:,}')
    if self.high < _LARGEST:
      parts.append(f'{"below" if self.below else "at most"} {self.high:,}')
    return ' and '.join(parts) or f'between {-_LARGEST} and {_LARGEST}'


Count = Annotated[int, Range(0, 2**53)]  # of things in a data set; 0 often: all
Steps = Annotated[int, Range(1, 2**53)]
Size = Annotated[int, Range(1, 2**24)]  # of an array's axis
SizeOrZero = Annotated[int, Range(0, 2**24)]
Processes = Annotated[int, Range(0, 4096)]
Seed = Annotated[int, Range(0, 2**32 - 1)]
Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Dtype = Literal['float32', 'bfloat16', 'float16']
Rate = Annotated[float, Range(0, 1, below=True)]  # of dropout


_SHOWN = 300  # characters of a refused value


class SettingsError(ValueError):
  """A refused value of a field."""

  def __init__(self, field: str, value: Any, expected: str):
    """Store the parts of the message."""
    super().__init__(field, value, expected)

  def __str__(self) -> str:
    field, value, expected = self.args
    shown = ' '.join(repr(value).splitlines())  # an array has several lines
    shown = shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'
    return f'{field}={shown}: expected {expected}.'


def check(instance: Any) -> None:
  """Hold each field of a dataclass to its annotation; a `__post_init__`.

  Annotations that are not numbers, strings, literals, or tuples and mappings of
  these accept anything. SettingsError for the first field that does not fit.
  """
  for name, hint in hints(type(instance)).items():
    check_value(name, getattr(instance, name), hint)


def build(
  cls: type[_T],
  section: Mapping[str, Any],
  name: str,
  *,
  ignore_others: bool = False,
) -> _T:
  """Build a dataclass and its nested dataclasses from a section of a config.

  Args:
    section: values by field; a nested dataclass has a section, too.
    name: of the section, such as 'config.optimizer'.
    ignore_others: whether values that belong to no field are ignored.

  Raises:
    ValueError: naming the field in full, for a value that does not fit; for
      fields that contradict each other, naming the section.
  """
  known, values = hints(cls), {}
  for key, value in section.items():
    hint = known.get(key)
    if hint is None and ignore_others:
      continue
    if hint is None:
      raise ValueError(f'{name}.{key}: {cls.__name__} has no such field.')
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
      value = build(hint, value, f'{name}.{key}', ignore_others=ignore_others)
    else:
      if typing.get_origin(hint) is tuple and isinstance(value, list):
        value = tuple(value)  # of JSON
      check_value(f'{name}.{key}', value, hint)
    values[key] = value
  needed = {
    x.name
    for x in dataclasses.fields(cls)
    if x.default is x.default_factory is dataclasses.MISSING
  }
  if missing := needed - set(values):
    raise ValueError(f'{name} lacks {sorted(missing)}.')
  try:
    return cls(**values)
  except SettingsError as error:
    field, *others = error.args
    raise SettingsError(f'{name}.{field}', *others) from None
  except ValueError as error:  # of fields that contradict each other
    raise ValueError(f'{name}: {error}') from None


def renamed(
  cls: type, source: object, stated: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
  """Return fields of a dataclass by other names for them; None is left out.

  `names` are by the others, and so are `stated` values, more than these too. SettingsError
  with `source` and the other name of a value that does not fit.
  """
  known = hints(cls)
  fields = {x: stated[x] for x in names if stated.get(x) is not None}
  for name, value in fields.items():
    check_value(f'{source}: {name}', value, known[names[name]])
  return {names[name]: value for name, value in fields.items()}


@functools.cache
def hints(cls: type) -> dict[str, Any]:
  """Annotation of each field of a dataclass."""
  hints = typing.get_type_hints(cls, include_extras=True)
  return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def check_value(name: str, value: Any, hint: Any) -> None:
  """Raise SettingsError where a value does not fit an annotation."""
  expected = _mismatch(value, hint)
  if expected:
    raise SettingsError(name, value, expected)
  if isinstance(value, Mapping) and typing.get_args(hint):
    for key, item in value.items():
      check_value(f'{name}.{key}', item, typing.get_args(hint)[1])


def describe(hint: Any) -> str:
  """Return what an annotation accepts; '' for anything."""
  return _mismatch(object(), hint).partition(f' {Range()}')[0]


def _mismatch(value: Any, hint: Any, limits: Range | None = None) -> str:
  """Describe the expected value, or return '' if it fits the annotation."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    limits = next((x for x in args[1:] if isinstance(x, Range)), None)
    return _mismatch(value, args[0], limits)
  if origin is Literal:
    return '' if value in args else f'one of {list(args)}'
  if origin in (typing.Union, types.UnionType):
    wrong = [_mismatch(value, arg, limits) for arg in args]
    return '' if '' in wrong else ' or '.join(wrong)
  if origin is not None and issubclass(origin, Sequence):
    if isinstance(value, str) or not isinstance(value, Sequence):
      return 'a tuple'
    if origin is not tuple or args[-1] is Ellipsis:  # any number of items
      args = args[:1] * len(value)
    if len(args) != len(value):
      return f'{len(args)} values'
    wrong = map(_mismatch, value, args)
    return next((f'for each item {what}' for what in wrong if what), '')
  if origin is not None and issubclass(origin, Mapping):
    return '' if isinstance(value, Mapping) else 'names with values'
  if hint in (int, float):
    limits = limits or Range()
    kind = numbers.Integral if hint is int else numbers.Real  # NumPy's, too
    fits = isinstance(value, kind) and not isinstance(value, bool)
    fits = fits and limits.holds(value)
    if fits and (math.isinf(limits.high) or math.isfinite(value)):
      return ''
    return f'a {"whole " if hint is int else ""}number {limits}'
  if hint in (bool, str):
    expected = 'a text' if hint is str else 'True or False'
    return '' if isinstance(value, hint) else expected
  return '' if hint is not type(None) or value is None else 'None'
