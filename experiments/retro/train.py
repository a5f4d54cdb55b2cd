# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train RETRO or its baseline on prepared data.

  python -m experiments.retro.train --config=configs/<name>.py[:baseline] \
    --config.data_dir=DATA --workdir=DIR

A killed command continues from the last checkpoint, bit for bit, when run again.
experiments.retro_qa.train fine-tunes a run on questions.
"""

from absl import logging
import ml_collections

from experiments.engine import command, loop
from experiments.retro import settings as settings_lib, task as retro_task
from retrieval.store import locks
from retro_jax.data import folder as retro_data


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`.

  Raises:
    ValueError: for a config of another task.
  """
  if config.task != 'retro':
    raise ValueError(
      f"config.task {config.task!r}: expected 'retro'; experiments.retro_qa.train "
      "trains 'retro_qa'."
    )
  data = retro_data.DataFolder.of(config, workdir)
  task = retro_task.make_task(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=locks.RUN)
