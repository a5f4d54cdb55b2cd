# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One-line messages for configs that do not load and for fields they lack."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import difflib
from importlib import machinery, util
import os
import re
import sys
import sysconfig
import traceback
import types
from typing import Any

from absl import flags
import ml_collections
from ml_collections.config_flags import tuple_parser

_FLAG = re.compile(r'--?(\w*config)(?:=(.*))?\Z', re.DOTALL)
_FIELD = re.compile(r'--?(config\.[^=]*)(?:=(.*))?\Z', re.DOTALL)
_TYPES = {int: 'a whole number', float: 'a number', bool: 'True or False'}
_SHOWN = 12  # names of fields in a message


def check(argv: Sequence[str], default: str = '') -> None:
  """Load each config file that arguments name, before the flags are defined.

  Args:
    argv: arguments of the command.
    default: config file of --config where `argv` names none.

  Raises:
    ValueError: on one line, with file and line where that is known.
  """
  for name, path in _paths(argv, default).items():
    _load(name, path)


@contextlib.contextmanager
def explained(argv: Sequence[str], default: str = '') -> Iterator[None]:
  """Turn errors of setting a config's fields into ValueError.

  Args:
    argv: arguments of the command.
    default: config file where `argv` names none.

  Raises:
    ValueError: with field and section, on one line.
  """
  try:
    yield
  except Exception as error:
    path = _paths(argv, default).get('config')
    message = path and _of_fields(argv, _load('config', path), error)
    if message:
      raise ValueError(message) from error
    raise


def _paths(argv: Sequence[str], default: str) -> dict[str, str]:
  """Return the last file of each config flag of the arguments."""
  found = {'config': default} if default else {}
  for name, value in _given(argv, _FLAG):
    if value is not None:
      found[name] = value
  return found


def _given(
  argv: Sequence[str], pattern: re.Pattern[str]
) -> Iterator[tuple[str, str | None]]:
  """Yield name and value of the flags that match a pattern."""
  for i, argument in enumerate(argv):
    if argument == '--':
      return
    if match := pattern.match(argument):
      name, value = match.groups()
      if value is None and i + 1 < len(argv):
        value = argv[i + 1]
      yield name, value


def _load(name: str, path: str) -> ml_collections.ConfigDict:
  """Return the config of FILE or FILE:ARGUMENT."""
  file, *argument = path.split(':', 1)
  if not file:
    raise ValueError(f"--{name}='': expected a file, file.py[:arg].")
  if not os.path.isfile(file):
    what = 'a folder' if os.path.isdir(file) else 'a device or a pipe'
    if not os.path.exists(file):
      what = 'no such file'
    raise ValueError(f'--{name}={file}: {what}; expected file.py[:arg].')
  try:
    module = _module(f'{name}_config', file)
    if not callable(getattr(module, 'get_config', None)):
      raise ValueError(
        f'{file}: no function get_config(); a config file defines one.'
      )
    config = module.get_config(*argument)
  except (Exception, SystemExit) as error:
    raise ValueError(_of_file(error, f'--{name}={path}', file)) from error
  if not isinstance(config, ml_collections.ConfigDict):
    found = type(config).__name__
    raise ValueError(f'{path}: get_config returned {found}, no ConfigDict.')
  return config


def _module(name: str, file: str) -> types.ModuleType:
  """Run a file as a module, whatever its ending."""
  loader = machinery.SourceFileLoader(name, file)
  module = util.module_from_spec(util.spec_from_loader(name, loader))
  sys.modules[name] = module  # where its dataclasses look for it
  loader.exec_module(module)
  return module


def _of_file(error: BaseException, flag: str, file: str) -> str:
  """Return file, line and error where a config file raised."""
  text = ' '.join(str(error).split())
  if isinstance(error, SyntaxError) and error.filename:
    return f'{error.filename}, line {error.lineno}: {error.msg}.'
  frames = traceback.extract_tb(error.__traceback__)
  own = os.path.abspath(file)
  starts = [
    i for i, x in enumerate(frames) if os.path.abspath(x.filename) == own
  ]
  kind = type(error).__name__ + (f': {text}' if text else '')
  if starts:
    last = [x for x in frames[starts[0] :] if not _is_installed(x.filename)][-1]
    what = text if text and type(error) is ValueError else kind
    start = '' if os.path.abspath(last.filename) == own else f'{flag}: '
    return f'{start}{last.filename}, line {last.lineno}: {what}'
  if isinstance(error, TypeError) and 'get_config()' in text:
    return f'{flag}: get_config is to take one argument, or none ({text}).'
  if type(error) is ValueError and file in text:
    return text
  return f'{file}: {kind}'


def _is_installed(file: str) -> bool:
  installed = [sysconfig.get_path(x) for x in ('stdlib', 'purelib', 'platlib')]
  return file.startswith(('<', *(os.path.realpath(x) for x in installed)))


def _of_fields(
  argv: Sequence[str], config: ml_collections.ConfigDict, error: Exception
) -> str:
  """Return what is wrong with the first --config.FIELD that does not fit."""
  given = list(_given(argv, _FIELD))
  for name, value in given:
    if message := _of_field(config, name, value):
      return message
  if given and not isinstance(error, flags.Error):
    names = ', '.join(f'--{name}' for name, _ in given)
    return f'{names}: {" ".join(str(error).split())}'
  return ''


def _of_field(
  config: ml_collections.ConfigDict, name: str, value: str | None
) -> str:
  section, found = 'config', config
  for part in re.split(r'[.\[]', name)[1:]:
    if not isinstance(found, Mapping | ml_collections.ConfigDict):
      kind = type(found).__name__
      if isinstance(found, list | tuple):
        return _of_item(found, name, section)
      return f'--{name}: {section} is no section, but of type {kind}.'
    if part not in found:
      near = _elsewhere(config, part) or _near(found, part)
      return f'--{name}: {section} has no field {part!r}; {near}.'
    section, found = f'{section}.{part}', found[part]
  return _of_type(name, value, found)


def _elsewhere(config: ml_collections.ConfigDict, name: str) -> str:
  """Name the sections that have the field, if any."""
  found = [
    f'config.{section}'
    for section, value in config.items()
    if isinstance(value, ml_collections.ConfigDict) and name in value
  ]
  return f'it is a field of {" and ".join(found[:3])}' if found else ''


def _of_item(items: Sequence[Any], name: str, section: str) -> str:
  """Return what is wrong with --config.FIELD[INDEX]."""
  index = name.removeprefix(section).strip('[]')
  if index.isdecimal() and int(index) < len(items):
    return ''
  return (
    f'--{name}: {section} has {len(items)} items, counted from 0; or set all '
    f'of them, --{section}=...'
  )


def _near(section: Mapping[str, Any], name: str) -> str:
  near = difflib.get_close_matches(name, list(section), 3)
  if near:
    return f'the nearest is {" or ".join(map(repr, near))}'
  names = list(section)
  more = ', ...' if len(names) > _SHOWN else ''
  return f'it has {", ".join(names[:_SHOWN])}{more}'


def _of_type(name: str, value: str | None, default: Any) -> str:
  if isinstance(default, ml_collections.ConfigDict):
    return f'--{name}={value}: {name} is a section; set its fields one by one.'
  if isinstance(default, tuple) and value is not None:
    return _of_tuple(name, value, default)
  expected = _TYPES.get(type(default))
  if expected is None or value is None:
    return ''
  try:
    if isinstance(default, bool):
      flags.BooleanParser().parse(value)
    else:
      type(default)(value)
  except ValueError:
    return f'--{name}={value}: expected {expected}, such as {default}.'
  return ''


def _of_tuple(name: str, value: str, default: tuple[Any, ...]) -> str:
  try:
    tuple_parser.TupleParser().parse(value)
  except Exception:  # noqa: BLE001 - Python's parser raises many classes
    return f'--{name}={value}: expected items, such as "{default}".'
  return ''
