# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts as users give them: one string is one text, not a list of letters."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from retrieval import settings

_LISTS = (list, tuple, np.ndarray)


def listed(values: Any, name: str) -> Any:
  """Return texts; a single text becomes a list of one.

  Lists, tuples and arrays are looked through. Other iterables, which may read their
  texts from a store, are returned as they are. ValueError with the argument's `name` for
  anything else than texts.
  """
  if isinstance(values, str):
    return [values]
  if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable):
    raise settings.SettingsError(name, values, 'a text or a list of texts')
  if isinstance(values, _LISTS):
    for i, value in enumerate(values):
      if not isinstance(value, str):
        raise settings.SettingsError(f'{name}[{i}]', value, 'a text')
  return values


def texts(values: Any, name: str) -> Any:
  """Return `listed` texts; ValueError also for a text that UTF-8 cannot hold."""
  checked = listed(values, name)
  for i, text in enumerate(checked if isinstance(checked, _LISTS) else ()):
    try:
      text.encode()
    except UnicodeEncodeError as error:
      at = error.start
      raise settings.SettingsError(
        f'{name}[{i}]', text, f'no half of a surrogate pair, as at {at}'
      ) from None
  return checked


def lists(values: Any, name: str) -> list[Any]:
  """Return several `listed` arguments; ValueError for anything else than texts."""
  values = [values] if isinstance(values, str) else values
  if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable):
    raise settings.SettingsError(name, values, 'lists of texts')
  return [listed(value, f'{name}[{i}]') for i, value in enumerate(values)]


def make_tuple(record: Any, field: str) -> None:
  """Make a field of a frozen dataclass a tuple of `listed` texts."""
  values = tuple(listed(getattr(record, field), field))
  object.__setattr__(record, field, values)
