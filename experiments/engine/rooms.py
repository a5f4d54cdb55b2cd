# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The code that serves each command for each `config.task`.

`ROOMS` maps a task to a name for each verb and for `config`, each as 'module' or
'module:name'. Without ':name', the module has a function of the verb's name, and
the module of `config` a class `Config`. Modules are imported when they are asked for.

A verb is one file of experiments/, such as experiments/train.py, that calls
`command.main('train')`. If the function's module has a dataclass of the verb's name with a
capital (`Evaluate` beside `evaluate`), it is the verb's section of the config.
"""

from collections.abc import Callable
import importlib
from typing import Any


def _of(room: str, verbs: str = '', **others: str) -> dict[str, str]:
  """Return the places of verbs; `verbs` are modules of a room, 'train' its task."""
  places = {
    verb: f'experiments.{room}.{"task" if verb == "train" else verb}'
    for verb in ('config', *verbs.split())
  }
  return places | {verb: f'experiments.{x}' for verb, x in others.items()}


_BLOCKS = _of(
  'realm', 'prepare train evaluate refresh_worker', update='open_qa.update'
)
_REALM = _BLOCKS | _of('realm', 'quickstart')

ROOMS = {
  'retro': _of('retro', 'prepare train evaluate update quickstart'),
  'retro_qa': _of('retro_qa', 'train evaluate'),
  'knn_lm': _of('knn_lm', 'prepare evaluate'),
  'arena': {'arena': 'experiments.arena', 'config': 'experiments.arena'},
  'in_context': _of(
    'in_context', 'evaluate', prepare='retro.prepare', config='retro.config'
  ),
  'realm': _REALM,
  'ict': _REALM,
  'mlm': _REALM,
  'open_qa': _BLOCKS | _of('open_qa', 'train evaluate'),
  'dpr': _of(
    'open_qa',
    prepare='realm.prepare',
    train='open_qa.dpr_task',
    config='open_qa.config:DprConfig',
  ),
}


def config_class(task: str) -> type:
  """Return the root dataclass of a task's configs."""
  return _find(task, 'config', 'Config')[1]


def function(task: str, verb: str) -> Callable[..., Any]:
  """Return a verb's function for a task; ValueError if the task lacks the verb."""
  return _find(task, verb, verb)[1]


def section(task: str, verb: str) -> type | None:
  """Return the dataclass of a verb's section, or None."""
  module = _find(task, verb, verb)[0]
  return getattr(module, verb.title(), None)


def _find(task: str, verb: str, default: str) -> tuple[Any, Any]:
  """Return a verb's module and the object in it."""
  known = [name for name, room in ROOMS.items() if verb in room]
  if task not in known:
    raise ValueError(f'config.task={task!r}: expected one of {known}.')
  module, _, name = ROOMS[task][verb].partition(':')
  loaded = importlib.import_module(module)
  return loaded, getattr(loaded, name or default)
