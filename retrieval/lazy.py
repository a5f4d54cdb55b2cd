# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of a package that load on first use (PEP 562)."""

from collections.abc import Callable, Mapping
import importlib
import sys
from typing import Any


def attach(
  package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
  """Return `__getattr__` and `__dir__` of a package.

  Args:
    package: the package's `__name__`.
    places: name -> `module`, or `module:attribute` where the attribute has another
      name; a module that begins with a dot is below the package.
  """

  def load(name: str) -> Any:
    if name not in places:
      raise AttributeError(f'module {package!r} has no attribute {name!r}')
    module, _, attribute = places[name].partition(':')
    value = getattr(importlib.import_module(module, package), attribute or name)
    setattr(sys.modules[package], name, value)
    return value

  return load, lambda: sorted({*vars(sys.modules[package]), *places})
