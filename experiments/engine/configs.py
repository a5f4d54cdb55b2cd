# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A command's config: from the defaults of a dataclass, a file and flags.

A room declares its fields once, in a frozen dataclass whose sections are the
dataclasses of the libraries (`experiments/<room>/config.py`, class `Config`). A
file of configs/ gives values only:

  def get_config(arg: str = 'base') -> configs.Config:
    c = configs.of(Config, task='retro')
    c.model.d_model = 128
    c.optimizer.learning_rate = 3e-3
    configs.for_command(c, 'evaluate', stride_chunks=4)
    return c

The ConfigDict is locked, so that an unknown name is an error in that line. A field
without a default is None until the file or a flag sets it. A section that only one
command reads is no field of `Config`: `command.main(..., section=Evaluate)` names its
dataclass, and --config.evaluate.FIELD sets its fields.
"""

import ast
from collections import abc
from collections.abc import Collection, Iterator, Sequence
import dataclasses
import difflib
from importlib import machinery, util
import os
import pathlib
import sys
import traceback
import types
import typing
from typing import Annotated, Any, Literal, TypeVar

import ml_collections
from ml_collections import config_dict

from retrieval import settings

Config = ml_collections.ConfigDict
FOLDER = pathlib.Path(__file__).parents[2] / 'configs'
_T = TypeVar('_T')


def of(cls: type, /, **values: Any) -> Config:
  """Return the locked config that fills a dataclass.

  Args:
    cls: dataclass; a field that is a dataclass becomes a section.
    **values: take the place of defaults. A section's values are a mapping.
  """
  fields = dataclasses.fields(cls)
  config = Config({x.name: _default(cls, x) for x in fields}).lock()
  for name, value in values.items():
    is_section = dataclasses.is_dataclass(value)
    config.update({name: dataclasses.asdict(value) if is_section else value})
  return config


def for_command(config: Config, command: str, **values: Any) -> None:
  """Set values of a section that only one command reads, such as 'evaluate'."""
  with config.unlocked():
    config[command] = values


def check_arg(arg: str, known: Collection[str]) -> None:
  """Raise ValueError for an unknown argument of a config file."""
  if arg not in known:
    raise ValueError(f'Config argument {arg!r}: expected one of {known}.')


def complete(
  config: Config,
  overrides: Sequence[tuple[str, str]],
  cls: type,
  section: type | None = None,
) -> list[Any]:
  """Build the dataclasses of a config and of a command's section.

  Args:
    config: of a file; complete afterwards.
    overrides: field and text, as of --config.FIELD=TEXT.

  Raises:
    ValueError: naming the first field that does not exist or fit.
  """
  if section:
    name = section_name(section)
    values = config.get(name) or Config()
    with config.unlocked():
      config[name] = of(section, **values.to_dict())
  for path, text in overrides:
    override(config, path, text, cls, section)
  built = [build(cls, config)]
  if section:
    built.append(
      settings.build(section, config[name].to_dict(), f'config.{name}')
    )
  return built


def section_name(cls: type) -> str:
  """Return the name of a command's section: `Evaluate` is `evaluate`."""
  return cls.__name__.lower()


def build(cls: type[_T], config: Config) -> _T:
  """Build the dataclass of a config; sections of other commands are left out."""
  known = settings.hints(cls)
  values = {
    name: value
    for name, value in config.to_dict().items()
    if name in known or not isinstance(value, dict)
  }
  return settings.build(cls, values, 'config')


def replaced(config: _T, **values: Any) -> _T:
  """Return a dataclass with other values, also of sections: `**{'model.d_ff': 8}`."""
  sections: dict[str, dict[str, Any]] = {}
  for name in [name for name in values if '.' in name]:
    section, _, field = name.partition('.')
    sections.setdefault(section, {})[field] = values.pop(name)
  for section, fields in sections.items():
    values[section] = replaced(getattr(config, section), **fields)
  return dataclasses.replace(config, **values)


def load(path: str) -> Config:
  """Return the config of FILE or FILE:ARGUMENT; ValueError names the bad line."""
  file, *argument = path.split(':', 1)
  if not os.path.isfile(file):
    raise ValueError(f'--config={path}: no such file; expected file.py[:arg].')
  try:
    loader = machinery.SourceFileLoader('config_file', file)
    module = util.module_from_spec(util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # where its dataclasses look for it
    loader.exec_module(module)
    config = module.get_config(*argument)
  except (Exception, SystemExit) as error:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [x.lineno for x in frames if x.filename == file]
    if isinstance(error, SyntaxError) and error.filename:
      file, lines = error.filename, [error.lineno]
    line = f', line {lines[-1]}' if lines else ''
    kind = '' if type(error) is ValueError else f'{type(error).__name__}: '
    text = ' '.join(str(getattr(error, 'msg', error)).split())
    raise ValueError(f'{file}{line}: {kind}{text}') from error
  if not isinstance(config, Config):
    raise ValueError(f'{path}: get_config returned no ConfigDict.')
  return config.lock()


def override(
  config: Config,
  name: str,
  text: str,
  cls: type,
  section: type | None = None,
) -> None:
  """Set the field of a dotted name to a flag's text, parsed by its annotation.

  `build` refuses a text of another type.

  Args:
    cls: dataclass of the config.
    section: dataclass of the command's section.
  """
  kind, place = cls, config
  *sections, last = name.split('.')
  if section and sections[:1] == [section_name(section)]:
    kind, place = section, config[sections.pop(0)]
  for part in sections:
    kind, place = _hint(kind, part), place and place.get(part)
  kind = _hint(kind, last)
  if kind is None or place is None:
    raise ValueError(
      f'--config.{name}={text}: no such field{_near(config, name)}.'
    )
  if _is_dataclass(kind):
    raise ValueError(f"--config.{name}={text}: expected a section's fields.")
  with place.unlocked(), place.ignore_type():
    place[last] = parse(text, kind)


_BOOLS = {'true': True, '1': True, 'false': False, '0': False}


def parse(text: str, hint: Any) -> Any:
  """Read the value of a field of an annotation, or leave the text.

  A tuple is `(1, 2)`, `1,2`, `a:b,c` or `a`.
  """
  kind = _kind(hint)
  if kind is bool:
    return _BOOLS.get(text.lower(), text)
  try:
    value = kind(text) if kind in (int, float, str) else ast.literal_eval(text)
  except (SyntaxError, ValueError):
    if kind is not tuple or text[:1] in ('(', '['):
      return text
    value = text.split(',') if text else ()
  if kind is not tuple:
    return value
  return tuple(value) if isinstance(value, list | tuple) else (value,)


def _near(config: Config, name: str) -> str:
  """Name fields that may have been meant."""
  names = [*_leaves(config)]
  near = [x for x in names if x.endswith(f'.{name}')]
  near = near or difflib.get_close_matches(name, names, 3)
  return f' (near: {", ".join(near)})' if near else ''


def _leaves(config: Config, prefix: str = '') -> Iterator[str]:
  for name, value in config.items():
    if isinstance(value, Config):
      yield from _leaves(value, f'{prefix}{name}.')
    else:
      yield f'{prefix}{name}'


def _hint(kind: Any, name: str) -> Any:
  """Return the annotation of a field, or of a key of a mapping; None for others."""
  if _is_dataclass(kind):
    return settings.hints(kind).get(name)
  is_mapping = typing.get_origin(kind) is abc.Mapping
  return typing.get_args(kind)[1] if is_mapping else None


def _default(cls: type, field: dataclasses.Field) -> Any:
  """Return the config's value of a field that nothing has set."""
  value, kind = field.default, _kind(settings.hints(cls)[field.name])
  if field.default_factory is not dataclasses.MISSING:
    value = field.default_factory()
  if value is dataclasses.MISSING and _is_dataclass(kind):
    return of(kind)
  if value is None or value is dataclasses.MISSING:
    return config_dict.placeholder(kind)
  if dataclasses.is_dataclass(value):
    return of(type(value), **vars(value))
  return float(value) if kind is float else value


def _is_dataclass(kind: Any) -> bool:
  return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _kind(hint: Any) -> type:
  """Return the type of an annotation's values, None apart."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    return _kind(args[0])
  if origin is Literal:
    return type(args[0])
  if origin in (typing.Union, types.UnionType):
    kinds = {_kind(x) for x in args if x is not type(None)}
    return kinds.pop() if len(kinds) == 1 else object
  return origin or (hint if isinstance(hint, type) else object)
