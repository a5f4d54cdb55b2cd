# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train REALM, its embedder by ICT or its encoder by MLM, as config.task says.

  python -m experiments.realm.train --config=configs/<name>.py[:arg] \
    --config.data_dir=DATA --workdir=DIR

config.task is one of

  realm  pre-trains REALM on prepared data and refreshes its index on the way
  ict    trains the embedder by the inverse cloze task (argument :ict); REALM
         and ORQA start from it with --config.embedder_from=DIR
  mlm    trains the encoder by masked language modelling (argument :mlm); REALM
         starts from it with --config.encoder_from=DIR

After a kill the same command continues from the last checkpoint: bit for bit
with the refresh schedules sync and frozen.
"""

from collections.abc import Callable
import functools

from absl import logging
import ml_collections

from experiments.engine import command, loop, tasks
from experiments.realm import (
  block_task,
  refresh_worker,
  settings as settings_lib,
  task as realm_task,
)
from realm_jax.data import folder as realm_data
from retrieval.store import locks

_BLOCK_TASKS = {
  'ict': block_task.make_ict_task,
  'mlm': block_task.make_mlm_task,
}


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`.

  Raises:
    ValueError: for an unknown config.task.
  """
  if config.task in _BLOCK_TASKS:
    block_task.run(_BLOCK_TASKS[config.task], config, workdir)
  elif config.task == 'realm':
    train(realm_task.make_task, config, workdir)
  else:
    known = ['realm', *_BLOCK_TASKS]
    raise ValueError(f'config.task={config.task!r}: expected one of {known}.')


def train(
  make_task: Callable[..., tasks.Task],
  config: ml_collections.ConfigDict,
  workdir: str,
) -> None:
  """Train a task that retrieves, made as by `task.make_task`."""
  data = realm_data.DataFolder.of(config, workdir)
  start_builder = functools.partial(
    refresh_worker.start_child, config, str(data.root), workdir
  )
  task = make_task(config, data, workdir, start_builder=start_builder)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  devices = realm_task.training_devices(config)
  loop.train(task, config, workdir, devices=devices)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=locks.RUN)
