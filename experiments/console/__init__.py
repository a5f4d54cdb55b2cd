# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The script `realm-retro VERB`, which is `python -m experiments.VERB` anywhere.

In a wheel this file is the package realm_retro_jax, which holds the commands and their
configs, so that a folder `experiments` or `configs` of the user's own is not in their
way. The script puts it on the path, for the processes that it starts, too.
"""

import os
import pathlib
import runpy
import sys

_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE if (_HERE / 'experiments').is_dir() else _HERE.parents[1]


def main() -> None:
  """Run the command that is named, or list all."""
  verb, *rest = sys.argv[1:] or ['help']
  sys.path.insert(0, str(_ROOT))
  others = os.environ.get('PYTHONPATH')
  path = [str(_ROOT), *filter(None, [others])]
  os.environ['PYTHONPATH'] = os.pathsep.join(path)
  sys.argv = ['-m', *rest]  # as if started by python -m
  from experiments import __main__ as commands

  rooms = commands.find_commands()
  name = f'experiments.{verb}'
  if any(name in found for found in rooms.values()):
    runpy.run_module(name, run_name='__main__', alter_sys=True)
  elif verb in ('help', '-h', '--help'):
    print(commands.as_text(rooms).replace(' experiments.', ' '))
  else:
    sys.exit(f'error: no command {verb!r}; `realm-retro` lists all.')
