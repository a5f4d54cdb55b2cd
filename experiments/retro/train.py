# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains RETRO, or its baseline without retrieval, on prepared data.

  python -m experiments.retro.train --config=configs/<name>.py[:baseline] \
    --config.data_dir=DATA --workdir=DIR

Run again after a kill, it continues from the last checkpoint, bit for bit.
"""

from absl import logging
import ml_collections

from experiments.engine import command
from experiments.engine import loop
from experiments.retro import task as retro_task
from retro_jax.data import folder as retro_data


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  data = retro_data.DataFolder.of(config, workdir)
  task = retro_task.make_task(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


if __name__ == '__main__':
  command.main(run, computes=True)
