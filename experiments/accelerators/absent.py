# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for packages of the data pipeline, which bare machines lack."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

PACKAGES = (
  'farmhash',
  'grain',
  'rapidfuzz',
  'regex',
  'safetensors',
  'sentencepiece',
  'sentencex',
  'tensorboardX',
  'tokenizers',
  'xxhash',
)


class _Names(type):
  def __getattr__(cls, name: str) -> type:
    if name.startswith('__'):
      raise AttributeError(name)
    return cls


class _Missing(metaclass=_Names):
  """Whatever a missing package holds; it can be named, not used."""

  def __init__(self, *args, **kwargs):
    del args, kwargs

  def __getattr__(self, name: str):
    raise ImportError(f'{name} of a package that is not installed.')


class _Module(types.ModuleType):
  def __getattr__(self, name: str) -> type:
    if name.startswith('__'):
      raise AttributeError(name)
    return _Missing


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  """Finds the missing packages and whatever lies in them."""

  def __init__(self, missing: list[str]):
    self.missing = missing

  def find_spec(self, fullname, path=None, target=None):
    if fullname.partition('.')[0] not in self.missing:
      return None
    return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

  def create_module(self, spec):
    return _Module(spec.name)

  def exec_module(self, module):
    pass


def stand_in() -> list[str]:
  """Let modules import missing packages that they do not use; return these."""
  missing = [x for x in PACKAGES if importlib.util.find_spec(x) is None]
  if missing:
    sys.meta_path.append(_Finder(missing))
  return missing


MISSING = stand_in()
