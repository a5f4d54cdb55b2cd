# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One-line messages for configs that do not load and for fields they lack."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import difflib
import os
import re
import sysconfig
import traceback
from typing import Any

from absl import flags
import ml_collections
from ml_collections.config_flags import config_flags

_FLAG = re.compile(r'--?config(?:=(.*))?\Z', re.DOTALL)
_FIELD = re.compile(r'--?(config\.[^=]*)(?:=(.*))?\Z', re.DOTALL)
_TYPES = {int: 'a whole number', float: 'a number', bool: 'True or False'}
_SHOWN = 12  # names of fields in a message


@contextlib.contextmanager
def explained(argv: Sequence[str], default: str = '') -> Iterator[None]:
  """Turn errors of loading a config and of setting its fields into ValueError.

  Args:
    argv: arguments of the command.
    default: config file where `argv` names none.

  Raises:
    ValueError: with file and line, or with field and section, on one line.
  """
  path = _path(argv, default)
  if path is not None:
    _check_file(path.partition(':')[0])
  try:
    yield
  except Exception as error:
    message = path and (_of_file(error, path) or _of_fields(argv, path))
    if message:
      raise ValueError(message) from error
    raise


def check_loaded(config: Any, path: str) -> None:
  """Raise ValueError unless a config file returned a ConfigDict."""
  if not isinstance(config, ml_collections.ConfigDict):
    found = type(config).__name__
    try:
      # What stands for a config that did not load raises its error here.
      _ = config.get
    except OSError as error:
      found = str(error).rpartition('failure to load:')[2].strip()
    except AttributeError:
      pass
    raise ValueError(
      f'{path}: get_config returned no ConfigDict, but: {found}.'
    )


def _path(argv: Sequence[str], default: str) -> str | None:
  """Return the last --config of the arguments, or the default, if any."""
  found = default or None
  for i, argument in enumerate(argv):
    if argument == '--':
      break
    if match := _FLAG.match(argument):
      found = match[1]
      if found is None and i + 1 < len(argv):
        found = argv[i + 1]
  return found


def _check_file(file: str) -> None:
  if not file:
    raise ValueError("--config='': expected a file, file.py[:arg].")
  if not os.path.isfile(file):
    what = 'a folder' if os.path.isdir(file) else 'no such file'
    raise ValueError(f'--config={file}: {what}; expected file.py[:arg].')


def _of_file(error: BaseException, path: str) -> str:
  """Return file, line and error where a config file raised, or ''."""
  file, _, argument = path.partition(':')
  while error.__cause__ or error.__context__:
    error = error.__cause__ or error.__context__
  if isinstance(error, SyntaxError) and error.filename:
    return f'{error.filename}, line {error.lineno}: {error.msg}.'
  frames = traceback.extract_tb(error.__traceback__)
  own = os.path.abspath(file)
  starts = [
    i for i, x in enumerate(frames) if os.path.abspath(x.filename) == own
  ]
  text = ' '.join(str(error).split())
  if starts:
    last = [x for x in frames[starts[0] :] if not _is_installed(x.filename)][-1]
    kind = '' if type(error) is ValueError else f'{type(error).__name__}: '
    start = (
      '' if os.path.abspath(last.filename) == own else f'--config={path}: '
    )
    return f'{start}{last.filename}, line {last.lineno}: {kind}{text}'
  if isinstance(error, AttributeError) and "'get_config'" in text:
    return f'{file}: no function get_config(); a config file defines one.'
  if isinstance(error, TypeError) and 'get_config()' in text:
    return f'{file}: get_config takes no argument {argument!r} ({text}).'
  return ''


def _is_installed(file: str) -> bool:
  installed = [sysconfig.get_path(x) for x in ('stdlib', 'purelib', 'platlib')]
  return file.startswith(('<', *(os.path.realpath(x) for x in installed)))


def _of_fields(argv: Sequence[str], path: str) -> str:
  """Return what is wrong with the first --config.FIELD that does not fit."""
  try:
    config = config_flags.ConfigFileFlagParser('config').parse(path)
    check_loaded(config, path)
  except Exception:  # noqa: BLE001 - the first error is told instead
    return ''
  for i, argument in enumerate(argv):
    if argument == '--':
      break
    if match := _FIELD.match(argument):
      name, value = match.groups()
      if value is None and i + 1 < len(argv):
        value = argv[i + 1]
      if message := _of_field(config, name, value):
        return message
  return ''


def _of_field(
  config: ml_collections.ConfigDict, name: str, value: str | None
) -> str:
  section, found = 'config', config
  for part in re.split(r'[.\[]', name)[1:]:
    if not isinstance(found, Mapping | ml_collections.ConfigDict):
      kind = type(found).__name__
      if isinstance(found, list | tuple):
        return ''
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
