# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every number of every config has limits, and what is outside ends in one line."""

from collections.abc import Iterator, Mapping
import functools
import importlib
import math
import pathlib
import random
import re
import resource
import subprocess
import sys
from typing import Any

import pytest

import configs
from experiments.in_context import settings as in_context_settings
from experiments.knn_lm import settings as knn_lm_settings
from experiments.open_qa import settings as open_qa_settings
from experiments.realm import settings as realm_settings
from experiments.reranking import settings as reranking_settings
from experiments.retro import settings as retro_settings
from retrieval import settings

# How the names of the configs begin, and what their commands hold them to.
ROOTS = {
  'claims': open_qa_settings.Settings,
  'colbert': open_qa_settings.Settings,
  'in_context': in_context_settings.Settings,
  'knn_lm': knn_lm_settings.Settings,
  'open_qa': open_qa_settings.Settings,
  'realm': realm_settings.Settings,
  'reranking': reranking_settings.Settings,
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


def _refusal(kind: str, section: dict[str, Any], path, value) -> str:
  """Return the message that refuses a value of a field, or ''."""
  try:
    changed, _ = _changed(section, path, value)
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
    for path in sorted({*_numbers(section)}):
      default = functools.reduce(dict.__getitem__, path, section)
      if (path, default) in seen:
        continue
      seen.add((path, default))
      field = '.'.join(('config', *path))
      whole = draw.choice((*NEVER, *SOMETIMES))
      assert '\n' not in _refusal(kind, section, path, whole)
      alone = {path[0]: section[path[0]]}  # the rest takes time
      for value in NEVER:
        said = _refusal(kind, alone, path, value)
        assert said.startswith(f'{field}=') and '\n' not in said, (field, said)
      for value in SOMETIMES:
        said = _refusal(kind, alone, path, value)
        # The field, or its section where fields contradict each other.
        assert not said or field.startswith(re.match(r'[\w.]*', said)[0]), said
        assert '\n' not in said
  assert len(seen) > 40


def _end(command: str, kind: str, workdir, *arguments: str) -> tuple[int, str]:
  """The exit code and the errors of a command; 0 if it still runs after 60 s."""
  config = f'configs/{kind}_pretrain_quickstart.py:test'
  limits = (16 << 30, 16 << 30)
  program = (sys.executable, '-m', f'experiments.{kind}.{command}')
  with subprocess.Popen(
    [*program, f'--config={config}', f'--workdir={workdir}', *arguments],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
  ) as process:
    try:
      said = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
      process.kill()
      return 0, ''
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['realm', 'retro'])
def test_accepted_numbers_run_or_are_refused_in_one_line(kind, tmp_path):
  module = importlib.import_module(f'configs.{kind}_pretrain_quickstart')
  section, draw = module.get_config('test').to_dict(), random.Random(kind)
  made = tmp_path / 'made'
  assert [_end(x, kind, made)[0] for x in ('prepare', 'train')] == [0, 0]
  paths, runs = sorted({*_numbers(section)}), 0
  while runs < 20:
    path, drawn = draw.choice(paths), draw.choice((0, 1, 3, 65536, *SOMETIMES))
    if _refusal(kind, section, path, drawn):
      continue
    runs, (_, value) = runs + 1, _changed(section, path, drawn)
    field = '.'.join(path)
    command, where = 'train', (tmp_path / f'{runs}',)
    where += (f'--config.data_dir={made / "data"}',)
    if path[0] in ('evaluate', 'sample'):
      command, where = path[0], (made,)
    code, said = _end(command, kind, *where, f'--config.{field}={value}')
    errors = [x for x in said.splitlines() if x.startswith('error: ')]
    sound = code == 0 or (code == 1 and len(errors) == 1)
    assert sound and 'Traceback' not in said, (field, value, said)
