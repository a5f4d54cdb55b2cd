# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every number of every config has limits, and what is outside ends in one line."""

from collections.abc import Iterator, Mapping
import copy
import importlib
import math
import pathlib
import random
import re
from typing import Any

import pytest

import configs
from experiments.knn_lm import settings as knn_lm_settings
from experiments.open_qa import settings as open_qa_settings
from experiments.realm import settings as realm_settings
from experiments.retro import settings as retro_settings
from retrieval import settings

# How the names of the configs begin, and what their commands hold them to.
ROOTS = {
  'claims': open_qa_settings.Settings,
  'knn_lm': knn_lm_settings.Settings,
  'open_qa': open_qa_settings.Settings,
  'realm': realm_settings.Settings,
  'retro': retro_settings.Settings,
}
NAMES = sorted(
  path.stem for path in pathlib.Path(configs.__file__).parent.glob('[a-z]*.py')
)
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


def _refusal(kind: str, section: dict[str, Any], path, value) -> str:
  """What is said of a value of a field; '' if it is accepted."""
  changed = copy.deepcopy(section)
  inner = changed
  for key in path[:-1]:
    inner = inner[key]
  old = inner[path[-1]]
  several = isinstance(old, tuple)
  if isinstance(old[0] if several else old, float) and type(value) is int:
    value = float(value)  # as a ConfigDict does
  inner[path[-1]] = (value,) if several else value
  try:
    settings.check_section(ROOTS[kind], changed, 'config')
  except ValueError as error:
    return str(error)
  return ''


@pytest.mark.parametrize('kind', ROOTS)
def test_numbers_outside_their_limits_are_refused_in_one_line(kind):
  draw, seen = random.Random(kind), set()
  for name in NAMES:
    if not name.startswith(kind):
      continue
    section = importlib.import_module(f'configs.{name}').get_config().to_dict()
    assert not _refusal(kind, section, ('seed',), section['seed'])
    for path in {*_numbers(section)} - seen:
      seen.add(path)
      field = '.'.join(('config', *path))
      for value in draw.sample(NEVER, 1):
        said = _refusal(kind, section, path, value)
        assert said.startswith(f'{field}=') and '\n' not in said, (field, said)
      for value in draw.sample(SOMETIMES, 2):
        said = _refusal(kind, section, path, value)
        # The field, or its section where fields contradict each other.
        assert not said or field.startswith(re.match(r'[\w.]*', said)[0]), said
        assert '\n' not in said
  assert len(seen) > 50
