# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A command's config: from the defaults of a dataclass, a file and flags.

A room declares its fields once, in a frozen dataclass whose sections are the
dataclasses of the libraries (`experiments/<room>/config.py`, class `Config`). A
file of configs/ gives values only:

  def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
    c = configs.of(Config, task='retro')
    c.model.d_model = 128
    c.optimizer.learning_rate = 3e-3
    configs.for_command(c, 'evaluate', overlap=0.875)
    return c

The ConfigDict is locked, so that an unknown name is an error in that line. A field
without a default is None until the file or a flag sets it. `command.main` applies
--config.FIELD=VALUE, builds the dataclass (`build`, the only check of values) and
calls `run(config, workdir)`.

A section that only one command reads, such as `evaluate`, is no field of `Config`:
the command names its dataclass (`command.main(..., section=Evaluate)`), the frame
adds the section under the dataclass's name in lower case (`--config.evaluate.split`)
and passes it on: `run(config, workdir, evaluate)`.
"""

import ast
from collections import abc
from collections.abc import Collection
import dataclasses
import difflib
from importlib import machinery, util
import os
import re
import sys
import traceback
import types
import typing
from typing import Annotated, Any, Literal, TypeVar

import ml_collections
from ml_collections import config_dict

from retrieval import settings

Config = ml_collections.ConfigDict
_T = TypeVar('_T')


def of(cls: type, /, **values: Any) -> Config:
  """Return the locked config that fills a dataclass.

  Args:
    cls: dataclass; a field that is a dataclass becomes a section. Fields that are
      `settings.rare` are left out.
    **values: take the place of defaults. A section's values are a mapping, or
      named one by one: `**{'model.d_model': 128}`.

  Raises:
    KeyError: for a value of a field that does not exist.
  """
  hints = settings.hints(cls)
  config = Config(
    {
      field.name: _default(field, hints[field.name])
      for field in dataclasses.fields(cls)
      if not field.metadata.get('rare')
    }
  ).lock()
  for name, value in values.items():
    _set(config, name, value)
  return config


def set_rare(section: Config, **values: Any) -> None:
  """Set fields of a section that `of` does not list (`settings.rare`)."""
  with section.unlocked():
    section.update(values)


def for_command(config: Config, command: str, **values: Any) -> None:
  """Set values of a section that only one command reads, such as 'evaluate'."""
  with config.unlocked():
    config[command] = values


def check_arg(arg: str, known: Collection[str]) -> None:
  """Raise ValueError for an unknown argument of a config file."""
  if arg not in known:
    raise ValueError(f'Config argument {arg!r}: expected one of {known}.')


def section_name(cls: type) -> str:
  """Name of a command's own section: `TuneHybrid` is `tune_hybrid`."""
  return re.sub(r'(?<!^)(?=[A-Z])', '_', cls.__name__).lower()


def add_section(config: Config, cls: type) -> None:
  """Complete a command's own section by the defaults of its dataclass."""
  name = section_name(cls)
  given = config.get(name) or {}
  with config.unlocked():
    config[name] = of(cls)
    for field, value in given.items():
      _set(config, f'{name}.{field}', value)
  config.lock()


def build(cls: type[_T], config: Config) -> _T:
  """Build the dataclass of a config; sections of other commands are left out.

  Raises:
    ValueError: naming the first field that does not fit.
  """
  known, values = settings.hints(cls), config.to_dict()
  others = [x for x, y in values.items() if x not in known and type(y) is dict]
  for name in others:
    del values[name]
  return settings.build(cls, values, 'config')


def replaced(config: _T, **values: Any) -> _T:
  """Return a dataclass with other values of fields.

  Args:
    **values: of fields, and of those of its sections: `**{'model.d_model': 128}`.
  """
  sections: dict[str, dict[str, Any]] = {}
  for name in [name for name in values if '.' in name]:
    section, _, field = name.partition('.')
    sections.setdefault(section, {})[field] = values.pop(name)
  for section, fields in sections.items():
    values[section] = replaced(getattr(config, section), **fields)
  return dataclasses.replace(config, **values)


def load(path: str) -> Config:
  """Return the config of FILE or FILE:ARGUMENT; the file is executed once.

  Raises:
    ValueError: on one line, with file and line where that is known.
  """
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
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    if isinstance(error, SyntaxError) and error.filename:
      file, lines = error.filename, [error.lineno]
    line = f', line {lines[-1]}' if lines else ''
    kind = '' if type(error) is ValueError else f'{type(error).__name__}: '
    raise ValueError(f'{file}{line}: {kind}{" ".join(text.split())}') from error
  if not isinstance(config, Config):
    found = type(config).__name__
    raise ValueError(f'{path}: get_config returned {found}, no ConfigDict.')
  return config.lock()


def override(
  config: Config, name: str, text: str, root: type | None = None
) -> None:
  """Set the field of a dotted name to a flag's text, read as the default's type.

  Args:
    root: dataclass of the config, whose rare fields are then known, too.

  Raises:
    ValueError: for an unknown field or a text of another type.
  """
  flag, kind = f'--config.{name}={text}', root
  section, *parts = config, *name.split('.')
  for part in parts:
    if isinstance(section, Config) and part not in section:
      _list_rare(section, kind, part)
    if not isinstance(section, Config) or part not in section:
      raise ValueError(f'{flag}: no such field{_near(config, section, part)}.')
    kind = settings.hints(kind).get(part) if _is_dataclass(kind) else None
    parent, section = section, section[part]
  kind = parent.get_type(part)
  try:
    parent[part] = _parse(text, kind)
  except (TypeError, ValueError, SyntaxError):
    raise ValueError(
      f'{flag}: expected {_KINDS.get(kind, kind.__name__)}.'
    ) from None


def _list_rare(section: Config, kind: Any, name: str) -> None:
  """Give a section the default of a rare field, or a new key of a mapping."""
  default = None
  if _is_dataclass(kind):
    field = next((x for x in dataclasses.fields(kind) if x.name == name), None)
    default = field and _default(field, settings.hints(kind)[name])
  elif typing.get_origin(kind) is abc.Mapping:
    default = config_dict.placeholder(object)
  if default is not None:
    with section.unlocked():
      section[name] = default


_KINDS = {int: 'a whole number', float: 'a number', bool: 'True or False'}
_KINDS |= {tuple: 'items, such as "(1, 2)"', Config: "a section's fields"}
_BOOLS = {'true': True, '1': True, 'false': False, '0': False}


def _parse(text: str, kind: type) -> Any:
  if kind is bool and text.lower() in _BOOLS:
    return _BOOLS[text.lower()]
  if kind is tuple:
    return _items(text)
  if kind in (int, float, str):
    return kind(text)
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError):
    if kind is object:
      return text
    raise


def _items(text: str) -> tuple:
  """Read `(1, 2)`, `1,2`, `word` or `NAME:SPLIT,...`."""
  try:
    found = ast.literal_eval(text) if text else ()
  except (SyntaxError, ValueError):
    if text[0] in '([':
      raise
    found = text.split(',')
  return tuple(found) if isinstance(found, list | tuple) else (found,)


def _near(config: Config, section: Any, name: str) -> str:
  """Name fields that may have been meant."""
  names = list(section) if isinstance(section, Config) else []
  near = difflib.get_close_matches(name, names, 3)
  sections = {x: y for x, y in config.items() if isinstance(y, Config)}
  near += [f'{x}.{name}' for x, y in sections.items() if name in y]
  return f' (near: {", ".join(near)})' if near else ''


def _default(field: dataclasses.Field, hint: Any) -> Any:
  """Return what stands in a config for a field that nothing has set."""
  value, kind = field.default, _kind(hint)
  if field.default_factory is not dataclasses.MISSING:
    value = field.default_factory()
  if value is dataclasses.MISSING and _is_dataclass(kind):
    return of(kind)
  if value is None or value is dataclasses.MISSING:
    return config_dict.placeholder(kind)
  return _plain(value, kind)


def _plain(value: Any, kind: type = object) -> Any:
  if dataclasses.is_dataclass(value):
    found = of(type(value))
    for name, item in vars(value).items():
      if name in found and dataclasses.is_dataclass(item):
        found[name] = _plain(item)
      elif name in found:
        _set(found, name, item)
      elif item != getattr(type(value), name, dataclasses.MISSING):
        set_rare(found, **{name: _plain(item)})
    return found
  if isinstance(value, int) and kind is float:
    return float(value)
  return Config(value) if isinstance(value, abc.Mapping) else value


def _is_dataclass(kind: Any) -> bool:
  return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _kind(hint: Any) -> type:
  """Return the type of the values that an annotation accepts beside None."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    return _kind(args[0])
  if origin is Literal:
    return type(args[0])
  if origin in (typing.Union, types.UnionType):
    return _kind(next(x for x in args if x is not type(None)))
  return origin or (hint if isinstance(hint, type) else object)


def _set(config: Config, name: str, value: Any) -> None:
  *sections, last = name.split('.')
  for section in sections:
    config = config[section]
  if dataclasses.is_dataclass(value):
    config[last] = _plain(value)
  elif isinstance(value, abc.Mapping) and isinstance(config[last], Config):
    for key, item in value.items():
      _set(config[last], key, item)
  else:
    config[last] = value
