# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The code that serves each command for each `config.task`.

`ROOMS` maps a task to a name for each verb and for `config`, each as 'module' or
'module:name'. Without ':name', the module has a function of the verb's name, and
the module of `config` a class `Config`. Modules are imported when they are asked for.

A verb is one file of experiments/, such as experiments/train.py, that calls
`command.main('train')`. If the function's module has a dataclass of the verb's name in
capitals (`Evaluate` beside `evaluate`), it is the verb's own section of the config.
"""

from collections.abc import Callable
import importlib
from typing import Any

_RETRO = {
  'config': 'experiments.retro.config',
  'prepare': 'experiments.retro.prepare',
  'train': 'experiments.retro.task',
  'evaluate': 'experiments.retro.evaluate',
  'compare': 'experiments.retro.compare',
  'update': 'experiments.retro.update',
  'tune_hybrid': 'experiments.retro.tune_hybrid',
  'quickstart': 'experiments.retro.quickstart',
}
_REALM = {
  'config': 'experiments.realm.config',
  'prepare': 'experiments.realm.prepare',
  'train': 'experiments.realm.task',
  'evaluate': 'experiments.realm.evaluate',
  'compare': 'experiments.realm.compare',
  'marginal_bias': 'experiments.realm.bias',
  'refresh_worker': 'experiments.realm.refresh_worker',
  'update': 'experiments.open_qa.update:run',
  'quickstart': 'experiments.realm.quickstart',
}
_OPEN_QA = {
  'config': 'experiments.open_qa.config',
  'prepare': 'experiments.realm.prepare',
  'train': 'experiments.open_qa.task',
  'tune_hybrid': 'experiments.open_qa.tune_hybrid',
  'evaluate': 'experiments.open_qa.evaluate',
  'refresh_worker': 'experiments.realm.refresh_worker',
  'update': 'experiments.open_qa.update:run',
}
_CONTRAST = {
  'prepare': 'experiments.realm.prepare',
  'train': 'experiments.open_qa.contrast_tasks',
}

ROOMS = {
  'retro': _RETRO,
  'retro_qa': {
    'config': 'experiments.retro_qa.config',
    'train': 'experiments.retro_qa.task',
    'evaluate': 'experiments.retro_qa.evaluate',
  },
  'knn_lm': {
    'config': 'experiments.knn_lm.config',
    'prepare': 'experiments.knn_lm.prepare',
    'evaluate': 'experiments.knn_lm.evaluate',
  },
  'in_context': {
    'config': 'experiments.in_context.config',
    'prepare': 'experiments.retro.prepare',
    'evaluate': 'experiments.in_context.evaluate',
  },
  'taught': _RETRO
  | {'config': 'experiments.taught.config', 'train': 'experiments.taught.task'},
  'realm': _REALM,
  'ict': _REALM,
  'mlm': _REALM,
  'open_qa': _OPEN_QA,
  'dpr': _CONTRAST | {'config': 'experiments.open_qa.config:DprConfig'},
  'colbert': _CONTRAST | {'config': 'experiments.open_qa.config:ColbertConfig'},
  'claims': _OPEN_QA | {'config': 'experiments.open_qa.config:ClaimsConfig'},
  'cross_encoder': {
    'config': 'experiments.reranking.config',
    'train': 'experiments.reranking.task',
  },
}


def config_class(task: str) -> type:
  """Return the root dataclass of a task's configs."""
  return _find(task, 'config', 'Config')[1]


def function(task: str, verb: str) -> Callable[..., Any]:
  """Return what a verb calls for a task; ValueError where there is no such verb."""
  return _find(task, verb, verb)[1]


def section(task: str, verb: str) -> type | None:
  """Return the dataclass of a verb's own section, if it has one."""
  module = _find(task, verb, verb)[0]
  return getattr(module, ''.join(x.title() for x in verb.split('_')), None)


def _find(task: str, verb: str, default: str) -> tuple[Any, Any]:
  """Return a module and what it holds for a verb."""
  known = [name for name, room in ROOMS.items() if verb in room]
  if task not in known:
    raise ValueError(f'config.task={task!r}: expected one of {known}.')
  module, _, name = ROOMS[task][verb].partition(':')
  found = importlib.import_module(module)
  return found, getattr(found, name or default)
