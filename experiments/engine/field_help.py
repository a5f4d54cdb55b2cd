# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Help on the fields of a config: flags with type, default and comment."""

from collections.abc import Iterator, Mapping
import dataclasses
import inspect
import re
import textwrap
from typing import Any

from retrieval import settings, text_table

_FIELD = re.compile(r'  (\w+): [^#]*(?:# (.*))?')
_WIDTH = 100


def lines(
  cls: type, values: Mapping[str, Any], full: bool, name: str = 'config'
) -> Iterator[str]:
  """Yield the help on each field of a dataclass and of its sections.

  Args:
    values: of the config, by field; they are the defaults.
    full: whether to show whole comments, not their beginnings on one line.
    name: of the section.
  """
  for section, _, field, about, value, comment in fields(cls, values, name):
    text = f'{about}. {comment}'
    text = text if full else text_table.shorten(text, _WIDTH - 4)
    yield f'  --{section}.{field}={value!r}'
    yield textwrap.fill(
      text.strip(), _WIDTH, initial_indent='    ', subsequent_indent='    '
    )


def fields(
  cls: type, values: Mapping[str, Any], name: str = 'config'
) -> Iterator[tuple[str, type, str, str, Any, str]]:
  """Yield section, declaring class, name, type, value and comment of each field."""
  comments = _comments(cls)
  for field, hint in settings.hints(cls).items():
    value = values.get(field)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
      yield from fields(hint, value, f'{name}.{field}')
      continue
    owner = next(x for x in cls.__mro__ if field in inspect.get_annotations(x))
    about = settings.describe(hint) or 'any value'
    yield name, owner, field, about, value, comments.get(field, '').strip()


def _comments(cls: type) -> dict[str, str]:
  """Return the comments above and beside the fields of a dataclass."""
  comments: dict[str, str] = {}
  for base in reversed(cls.__mro__[:-1]):
    above: list[str] = []
    for line in inspect.getsource(base).splitlines():
      if line.startswith('  # '):
        above.append(line[4:])
        continue
      if match := _FIELD.match(line):
        comments[match[1]] = ' '.join([*above, match[2] or ''])
      above = []
  return comments
