# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for packages of the data pipeline, which bare machines lack.

Importing this module lets others import the missing packages without using them.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys

PACKAGES = (
  'farmhash',
  'filelock',
  'grain',
  'pyarrow',
  'rapidfuzz',
  'regex',
  'safetensors',
  'sentencepiece',
  'sentencex',
  'tensorboardX',
  'threadpoolctl',
  'tokenizers',
  'xxhash',
)


class _Missing(type):
  """Class of a stand-in for a module; each attribute is the stand-in again."""

  def __getattr__(cls, name: str) -> type:
    if name.startswith('__'):
      raise AttributeError(name)
    return cls


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  """Finds the missing packages and whatever lies in them."""

  def find_spec(self, fullname, path=None, target=None):
    if fullname.partition('.')[0] not in MISSING:
      return None
    return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

  def create_module(self, spec):
    # Instances may be made, by regular expressions of a module, but not used.
    return _Missing(spec.name, (), {'__init__': lambda self, *_, **__: None})

  def exec_module(self, module):
    pass


MISSING = [x for x in PACKAGES if importlib.util.find_spec(x) is None]
if MISSING:
  sys.meta_path.append(_Finder())
