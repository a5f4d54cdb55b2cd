# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder by masked language modelling: a warm start of REALM's.

  python -m experiments.mlm --config=configs/<name>.py:mlm \
    --config.data_dir=DATA --workdir=DIR

For an encoder whose checkpoint is no BERT with its head, such as all-MiniLM-L6-v2
(see `realm_jax.mlm`). REALM takes it over with --config.encoder_from=DIR.
"""

import functools

from absl import logging
import jax
import ml_collections

from experiments import command
from experiments import loop
from experiments import realm_data
from experiments import realm_task
from experiments import tasks
from realm_jax import block_dataset
from realm_jax import mlm
from realm_jax import model as model_lib


def make_task(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> tasks.Task:
  """Binds encoder, loss and data.

  Args:
    config: of the experiment.
    data: where the stores lie.

  Returns:
    What the loop trains.
  """
  layout, blocks = data.layout(config), data.masked_blocks
  model_cfg = realm_task.model_config(config, data)
  settings = config.mlm
  weights = mlm.token_weights(
    blocks, data.tokenizer.vocab_size, settings.rarity
  )

  def read(ids, rng):
    return mlm.read_rows(
      layout,
      blocks,
      ids,
      rng,
      mask_rate=settings.mask_rate,
      removal_rate=settings.removal_rate,
      token_weights=weights,
    )

  dataset = functools.partial(
    block_dataset.make_dataset,
    read,
    blocks,
    valid_fraction=config.valid_fraction,
    batch_size=config.batch_size,
    seed=config.seed,
    process_index=jax.process_index(),
    process_count=jax.process_count(),
  )
  return tasks.Task(
    init=functools.partial(
      realm_task.init_params,
      config=config,
      model_cfg=model_cfg,
      parts='encoder',
      fitted_head=realm_task.fitted_head(config, data, model_cfg),
    ),
    init_on_host=True,
    loss=functools.partial(mlm.loss, model_lib.Realm(model_cfg)),
    dataset=lambda split: dataset(split=split),
    pipeline_fingerprint=block_dataset.fingerprint(
      blocks, layout, config.valid_fraction, settings
    ),
    tokens_per_step=config.batch_size * layout.joint_length,
    fingerprints=data.fingerprints(),
  )


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  task = make_task(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


if __name__ == '__main__':
  command.main(run, computes=True)
