# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train a reader of retrieved blocks, a classifier of claims or DPR's retriever.

  python -m experiments.open_qa.train --config=configs/open_qa_<name>.py[:arg] \
    --config.realm_from=REALM --config.questions.train="('webquestions:train',)" \
    --workdir=DIR

config.task says what is trained: 'open_qa', retriever and reader together (REALM,
ORQA); 'dpr', the retriever alone (config argument dpr); 'claims', a classifier of
claims (configs/claims_base.py). Prepares the data in <workdir>/data, unless
--config.data_dir names a data folder. Run again after a kill, it continues from the
last checkpoint bit for bit.
"""

import functools

from absl import logging
import jax
import ml_collections

from experiments.engine import command, loop
from experiments.open_qa import dpr_task, starts, task as qa_task
from experiments.realm import (
  block_task,
  prepare as realm_prepare,
  refresh_worker,
  task as realm_task,
)
from realm_jax.data import folder as realm_data


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`."""
  if config.task == 'dpr':
    block_task.run(dpr_task.make_task, config, workdir)
    return
  if config.task not in ('open_qa', 'claims'):
    raise ValueError(
      f'config.task {config.task!r}: expected open_qa, dpr or claims.'
    )
  qa_task.check_sets(config)
  data = realm_data.DataFolder.of(config, workdir)
  if not config.data_dir:
    realm_prepare.run(config, workdir)
  config = starts.freeze(config)
  start_builder = functools.partial(
    refresh_worker.start_child, config, str(data.root), workdir
  )
  builders = realm_task.builder_devices(config)
  devices = [d for d in jax.devices() if d not in builders]
  task = qa_task.make_task(
    config, data, workdir, devices=devices, start_builder=start_builder
  )
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir, devices=devices)


if __name__ == '__main__':
  command.main(run, computes=True)
