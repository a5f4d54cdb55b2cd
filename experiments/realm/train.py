# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-trains REALM on prepared data, its index refreshed as it learns.

  python -m experiments.realm.train --config=configs/<name>.py[:arg] \
    --config.data_dir=DATA --workdir=DIR

Run again after a kill, it continues from the last checkpoint: bit for bit with
the refresh schedules sync and frozen.
"""

import functools

from absl import logging
import jax
import ml_collections

from experiments.engine import command
from experiments.engine import loop
from experiments.realm import refresh_worker as realm_refresh
from experiments.realm import task as realm_task
from realm_jax.data import folder as realm_data


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  start_builder = functools.partial(
    realm_refresh.start_child, config, str(data.root), workdir
  )
  task = realm_task.make_task(config, data, workdir, start_builder)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  devices = jax.devices()
  builders = realm_task.builder_devices(config)
  loop.train(
    task, config, workdir, devices=[d for d in devices if d not in builders]
  )


if __name__ == '__main__':
  command.main(run, computes=True)
