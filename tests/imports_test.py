# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Who may import whom, and that importing starts and defines nothing."""

import ast
import graphlib
import itertools
import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_MAY_IMPORT = {
  'retrieval': {'retrieval'},
  'realm_jax': {'realm_jax', 'retrieval'},
  'retro_jax': {'retro_jax', 'retrieval'},
  'configs': {'configs', 'experiments', 'realm_jax', 'retro_jax', 'retrieval'},
  'experiments': {'experiments', 'realm_jax', 'retro_jax', 'retrieval'},
}
# Within a package: the rooms from the ground up. A room imports only rooms that
# stand before it.
_ROOMS = {
  'retrieval': (
    'store',
    'formats',
    'readers',
    'tokenization',
    'text',
    'kernels',
    'nn',
    'searchers',
    'search',
    'index',
    'questions',
  ),
  'realm_jax': ('data', 'nn', 'objectives', 'trained', 'checkpoints'),
  'retro_jax': (
    'nn',
    'public',
    'data',
    'decoding',
    'evaluation',
    'views',
    'trained',
  ),
  'experiments': (
    'engine',
    'retro',
    'retro_qa',
    'knn_lm',
    'in_context',
    'realm',
    'open_qa',
    'conversion',
    'tables',
    'accelerators',
    'benchmarks',
    'nano',
    'serve',
    'adapters',
  ),
}
# Rooms side by side: neither imports the other.
_APART = (
  *itertools.product(
    ('retro', 'retro_qa', 'knn_lm', 'in_context'),
    ('realm', 'open_qa'),
  ),
  ('benchmarks', 'tables'),
)
_ORBAX_MODULES = (
  'experiments/engine/checkpoint_writer.py',
  'retrieval/store/checkpoints.py',
)


def _imports(tree):
  """Dotted names of every module that a syntax tree imports."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      module = '.' * node.level + (node.module or '')
      yield from (
        (node.lineno, f'{module}.{alias.name}') for alias in node.names
      )


def _runs_upward(path, name):
  """Whether a module imports from a room above or beside its own."""
  (package, *inner), (other, *rest) = path.split('/'), name.split('.')
  rooms = _ROOMS.get(package, ())
  if package != other or not (rest and rest[0] in rooms):
    return False
  if len(inner) < 2:  # a module of no room stands above all of them
    return False
  pair = inner[0], rest[0]
  apart = package == 'experiments' and (pair in _APART or pair[::-1] in _APART)
  return apart or rooms.index(rest[0]) > rooms.index(inner[0])


def _violations(path, source):
  """Lines that say what a file imports against the rules."""
  room = path.split('/')[0]
  for line, name in _imports(ast.parse(source)):
    top = name.split('.')[0]
    if not top:
      yield f'{path}:{line}: relative import {name}'
    elif top in _MAY_IMPORT and top not in _MAY_IMPORT[room]:
      yield f'{path}:{line}: {room} may not import {name}'
    elif _runs_upward(path, name):
      yield f'{path}:{line}: imports {name}, of a room above or beside its own'
    elif top == 'orbax' and path not in _ORBAX_MODULES:
      yield f'{path}:{line}: only {_ORBAX_MODULES} import Orbax'
    elif room != 'experiments' and (
      name.startswith(('absl.flags', 'absl.app'))
      or name.startswith('ml_collections.config_flags')
    ):
      yield f'{path}:{line}: only experiments reads flags'


def _sources():
  for room in _MAY_IMPORT:
    for path in sorted((_ROOT / room).rglob('*.py')):
      yield path.relative_to(_ROOT).as_posix(), path


def _module(name):
  return name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')


def test_imports_run_downward_only():
  found = [
    line
    for name, path in _sources()
    for line in _violations(name, path.read_text(encoding='utf-8'))
  ]
  assert not found, '\n'.join(found)


def test_the_checker_sees_violations():
  for path, source in (
    ('retrieval/x.py', 'from retro_jax import model'),
    ('retrieval/x.py', 'def f():\n  import experiments.engine.loop'),
    ('retrieval/text/x.py', 'from retrieval.index import vectors'),
    ('experiments/open_qa/x.py', 'from experiments.retro import task'),
    ('experiments/x.py', 'from orbax.checkpoint import v1'),
    ('experiments/x.py', 'from . import loop'),
    ('retrieval/x.py', 'from absl import flags'),
  ):
    assert list(_violations(path, source)), (path, source)
  source = 'from retrieval import bert\nfrom absl import logging'
  assert not list(_violations('retro_jax/x.py', source))


def test_no_modules_import_each_other():
  modules = {_module(name): path for name, path in _sources()}
  graph = {}
  for module, path in modules.items():
    names = (x for _, x in _imports(ast.parse(path.read_text('utf-8'))))
    found = {x if x in modules else x.rpartition('.')[0] for x in names}
    graph[module] = (found & modules.keys()) - {module}
  assert 'retrieval.text.corpus' in graph['retrieval.text.blocks']
  order = graphlib.TopologicalSorter(graph).static_order()
  assert len([*order]) == len(modules)  # else a CycleError


_IMPORT_ALL = """
import importlib, sys
names = sys.argv[1:]
for name in names:
  importlib.import_module(name)
from absl import flags
from jax._src import xla_bridge
print('backends', sorted(xla_bridge._backends))
by_module = flags.FLAGS.flags_by_module_dict()
ours = [module for module in by_module if module in names]
print('flags', sorted(f.name for m in ours for f in by_module[m]))
"""


def _import_all(names, path):
  result = subprocess.run(
    [sys.executable, '-c', _IMPORT_ALL, *names],
    cwd=path,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(path)},
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert result.returncode == 0, result.stderr
  return result.stdout.splitlines()


@pytest.mark.slow
def test_importing_starts_no_backend_and_defines_no_flag():
  names = [_module(name) for name, _ in _sources()]
  assert len(names) > 20
  assert _import_all(names, _ROOT) == ['backends []', 'flags []']
