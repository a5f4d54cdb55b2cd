# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every number of every config has limits, and what is outside ends in one line."""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import importlib
import math
import pathlib
import random
import re
from typing import Any

import pytest

import configs
from experiments.engine import rooms
from retrieval import settings

NAMES = sorted(
  path.stem for path in pathlib.Path(configs.__file__).parent.glob('[a-z]*.py')
)
KINDS = sorted({name.split('_')[0] for name in NAMES} - {'fid'})
NEVER = (math.nan, 10**30, -(10**30), 'wrong')
SOMETIMES = (-1, 0, 0.5, math.inf, -math.inf, 10**9, 1e-30, True)


def _numbers(section: Mapping[str, Any], path=()) -> Iterator[tuple[str, ...]]:
  """The path of every number, those in tuples too."""
  for key, value in section.items():
    if isinstance(value, Mapping):
      yield from _numbers(value, (*path, key))
    items = value if isinstance(value, tuple) else (value,)
    if any(type(x) in (int, float) for x in items):
      yield (*path, key)


def _changed(section: dict[str, Any], path, value) -> tuple[dict, Any]:
  """The config with a field of another value, and that value as it stands."""
  changed = dict(section)
  inner = changed
  for key in path[:-1]:
    inner[key] = dict(inner[key])
    inner = inner[key]
  old = inner[path[-1]]
  several = isinstance(old, tuple)
  if isinstance(old[0] if several else old, float) and type(value) is int:
    value = float(value)  # as a ConfigDict does
  inner[path[-1]] = (value,) if several else value
  return changed, inner[path[-1]]


def _refusal(root: type, section: dict[str, Any], path, value) -> str:
  """Return the message that refuses a value of a field, or ''."""
  try:
    changed, _ = _changed(section, path, value)
    kind = settings.hints(root)[path[0]]
    if dataclasses.is_dataclass(kind):  # the rest takes time
      settings.build(kind, changed[path[0]], f'config.{path[0]}')
    else:
      settings.build(root, changed, 'config')
  except ValueError as error:
    return str(error)
  return ''


@pytest.mark.parametrize('kind', KINDS)
def test_numbers_outside_their_limits_are_refused_in_one_line(kind):
  draw, seen = random.Random(kind), set()
  for name in NAMES:
    module = importlib.import_module(f'configs.{name}')
    if not name.startswith(kind) or not hasattr(module, 'get_config'):
      continue
    config = module.get_config()
    root = rooms.config_class(config.task)
    fields = settings.hints(root)
    section = {k: x for k, x in config.to_dict().items() if k in fields}
    assert not _refusal(root, section, ('seed',), section['seed'])
    for path in sorted({*_numbers(section)}):
      default = functools.reduce(dict.__getitem__, path, section)
      if (path, default) in seen:
        continue
      seen.add((path, default))
      field = '.'.join(('config', *path))
      whole = draw.choice((*NEVER, *SOMETIMES))
      assert '\n' not in _refusal(root, section, path, whole)
      for value in NEVER:
        said = _refusal(root, section, path, value)
        assert said.startswith(f'{field}=') and '\n' not in said, (field, said)
      for value in SOMETIMES:
        said = _refusal(root, section, path, value)
        # The field, or its section where fields contradict each other.
        assert not said or field.startswith(re.match(r'[\w.]*', said)[0]), said
        assert '\n' not in said
  assert len(seen) > 15
