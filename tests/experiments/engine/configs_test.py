# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Configs from dataclasses, config files and overrides."""

from collections.abc import Mapping
import dataclasses
from typing import Annotated, Literal

import pytest

from experiments.engine import command, configs, rooms
from retrieval import settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
  d_model: settings.Size
  rate: float = 1
  layers: tuple[int, ...] = ()
  heads: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
  count: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  task: Literal['a', 'b']
  model: Model
  steps: settings.Steps
  part: Part = Part()
  overlap: Annotated[float, settings.Range(0, 1)] | None = None
  rules: Mapping[str, str | tuple[str, ...]] = dataclasses.field(
    default_factory=lambda: {'vocab': 'tensor'}
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measure:
  split: str = 'test'
  shares: tuple[float, ...] = (0.5,)
  other: Model = Model(d_model=2, rate=0.5)


def _config():
  return configs.of(Config, task='a', steps=3, model={'d_model': 8})


def test_values_take_the_place_of_defaults():
  c = _config()
  c.overlap = 0.5
  c.model.rate = 0.1
  built = configs.build(Config, c)
  model = Model(d_model=8, rate=0.1)
  assert built == Config(task='a', model=model, steps=3, overlap=0.5)


def test_a_field_that_nothing_sets_is_refused_by_name():
  with pytest.raises(ValueError, match='config.model.d_model=None'):
    configs.build(Config, configs.of(Config, task='a', steps=1))


def test_unknown_names_are_refused():
  c = _config()
  with pytest.raises((AttributeError, KeyError), match='d_modle'):
    c.model.d_modle = 3
  with pytest.raises(KeyError, match='stpes'):
    configs.of(Config, stpes=3)


@pytest.mark.parametrize(
  'name, text, expected',
  [
    ('steps', '12', 12),
    ('model.rate', '1e-3', 1e-3),
    ('model.layers', '(1, 2)', (1, 2)),
    ('model.layers', '1', (1,)),
    ('model.layers', '', ()),
    ('overlap', '0.5', 0.5),
    ('rules.vocab', 'fsdp', 'fsdp'),
    ('task', 'b', 'b'),
  ],
)
def test_overrides_take_the_type_of_the_default(name, text, expected):
  c = _config()
  configs.override(c, name, text, Config)
  for part in name.split('.'):
    c = c[part]
  assert c == expected


@pytest.mark.parametrize(
  'name, text, part',
  [
    ('stpes', '3', 'near: steps'),
    ('part.count', 'abc', 'part.count'),
    ('rate', '3', 'near: model.rate'),
    ('model.x.y', '3', 'no such field'),
    ('model', '3', 'expected a section'),
    ('steps', 'a', "config.steps='a'"),
    ('steps', '0', 'config.steps=0'),
    ('model.layers', '(1,', r"config.model.layers='\(1,'"),
  ],
)
def test_other_overrides_are_refused(name, text, part):
  with pytest.raises(ValueError, match=part) as error:
    configs.complete(_config(), [(name, text)], Config)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'text, part',
  [
    ('def get_config(:\n', ', line 1: SyntaxError'),
    ('x = 1\n', 'AttributeError'),
    (
      'def get_config():\n  return f()\n\ndef f():\n  1 / 0\n',
      ', line 5: Zero',
    ),
    ("def get_config():\n  return open('/nonexistent')\n", '/nonexistent'),
    ('def get_config():\n  return 3\n', 'no ConfigDict'),
    ('def get_config():\n  raise SystemExit(3)\n', ', line 2: SystemExit: 3'),
    ('x = 1\0\n', ''),
  ],
)
def test_other_files_are_named(tmp_path, text, part):
  (tmp_path / 'config.py').write_text(text)
  with pytest.raises(ValueError, match=f'config.py.*{part}') as error:
    configs.load(str(tmp_path / 'config.py'))
  assert '\n' not in str(error.value)
  with pytest.raises(ValueError, match='no such file'):
    configs.load(str(tmp_path))


def test_the_section_of_a_command():
  c = _config()
  configs.for_command(c, 'measure', split='valid')
  overrides = [('measure.shares', '.1,.2'), ('model.heads', '4')]
  built, measure = configs.complete(c, overrides, Config, Measure)
  assert measure == Measure(split='valid', shares=(0.1, 0.2))
  assert built.model.heads == 4 and built.steps == 3
  configs.for_command(c, 'measure', splot='valid')
  with pytest.raises((AttributeError, KeyError), match='splot'):
    configs.complete(c, [], Config, Measure)


def test_every_room_has_a_class_and_its_functions():
  for task, room in rooms.ROOMS.items():
    assert dataclasses.is_dataclass(rooms.config_class(task))
    for verb in set(room) - {'config'}:
      assert callable(rooms.function(task, verb))
      if cls := rooms.section(task, verb):
        assert configs.of(cls).to_dict()
  with pytest.raises(ValueError, match='config.task'):
    rooms.function('no_task', 'train')


def test_overrides_are_taken_out_of_the_arguments():
  given = ['x', '--config.distributed', '--workdir=w', '--config.a.b=c=d']
  rest, overrides = command._split(given)
  assert overrides == [('distributed', 'True'), ('a.b', 'c=d')]
  assert rest == ['x', '--workdir=w']
