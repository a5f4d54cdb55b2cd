# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands in a process that has no packages but those of docs/accelerators.md."""

from importlib import metadata
import os
import pathlib
import re
import subprocess
import sys

from packaging import requirements, utils

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMMANDS = ('make_questions', 'retro_rows', 'train_reader')
OURS = {'configs', 'experiments', 'realm_jax', 'retrieval', 'retro_jax'}
_RUN = """
import importlib.machinery as machinery
import runpy
import sys
import sysconfig

sysconfig.get_config_vars()  # a module of its own for each build of Python
allowed = {*sys.argv[1].split(','), *sys.stdlib_module_names}

class Finder(machinery.PathFinder):
  @classmethod
  def find_spec(cls, name, path=None, target=None):
    if name.partition('.')[0] in allowed:
      return machinery.PathFinder.find_spec(name, path, target)

finders = [Finder if x is machinery.PathFinder else x for x in sys.meta_path]
sys.meta_path[:] = finders
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
"""


def modules() -> set[str]:
  """Return the modules that the page's packages and their requirements install."""
  page = (ROOT / 'docs/accelerators.md').read_text()
  [line] = re.findall(r'^pip install (jax .*)$', page, re.MULTILINE)
  todo, seen = [(name, '') for name in line.split()], set()
  while todo:
    name, extra = todo.pop()
    name = utils.canonicalize_name(name)
    if (name, extra) in seen:
      continue
    seen.add((name, extra))
    for need in map(requirements.Requirement, metadata.requires(name) or ()):
      if not need.marker or need.marker.evaluate({'extra': extra}):
        todo += [(need.name, x) for x in ('', *need.extras)]
  names = {name for name, _ in seen}
  return {
    module
    for module, owners in metadata.packages_distributions().items()
    if names & {utils.canonicalize_name(x) for x in owners}
  }


def run(module: str, *argv: str) -> None:
  """Run a command there."""
  allowed = ','.join(sorted(modules() | OURS | {'tests'}))
  subprocess.run(
    [sys.executable, '-c', _RUN, allowed, module, *argv],
    env=os.environ | {'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
    cwd=ROOT,
    check=True,
  )
