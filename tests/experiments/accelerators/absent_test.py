# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What runs on bare machines imports what the page lists, or has a stand-in."""

import ast
import sys

from experiments.accelerators import absent
from experiments.engine import rooms
from tests.experiments.accelerators import bare


def _imports(node):
  """Names that importing a module imports: not those inside of functions."""
  for x in ast.iter_child_nodes(node):
    if isinstance(x, ast.Import):
      yield from (alias.name for alias in x.names)
    elif isinstance(x, ast.ImportFrom):
      yield from (f'{x.module}.{alias.name}' for alias in x.names)
    elif not isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef):
      yield from _imports(x)


def _outside(names):
  """Packages of others that our modules import, with all that these import."""
  seen, found, todo = set(), set(), [*names]
  while todo:
    name = todo.pop()
    if name.partition('.')[0] not in bare.OURS:
      found.add(name.partition('.')[0])
    elif name not in seen:
      seen.add(name)
      path = bare.ROOT / name.replace('.', '/')
      todo += [name.rpartition('.')[0]] if '.' in name else []
      for file in (path / '__init__.py', path.with_suffix('.py')):
        if file.exists():
          todo += _imports(ast.parse(file.read_text('utf-8')))
  return found - sys.stdlib_module_names


def test_all_that_is_imported_is_listed_or_has_a_stand_in():
  tasks = ('retro', 'realm', 'open_qa')
  names = [
    *(rooms.ROOMS[task]['config'].partition(':')[0] for task in tasks),
    *(f'experiments.accelerators.{x}' for x in bare.COMMANDS),
  ]
  found = _outside(names)
  assert {'jax', 'flax'} <= found
  assert found <= bare.modules() | {*absent.PACKAGES}
