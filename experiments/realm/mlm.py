# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder by masked language modelling: a warm start of REALM's.

  python -m experiments.realm.mlm --config=configs/<name>.py:mlm \
    --config.data_dir=DATA --workdir=DIR

For an encoder whose checkpoint is no BERT with its head, such as all-MiniLM-L6-v2
(see `realm_jax.objectives.mlm`). REALM takes it over with --config.encoder_from=DIR.
"""

import ml_collections

from experiments.engine import command
from experiments.engine import tasks
from experiments.realm import block_task
from realm_jax.data import folder as realm_data
from realm_jax.objectives import mlm


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
  data.check_masked(config)
  layout, blocks, settings = data.layout(config), data.masked_blocks, config.mlm
  weights = mlm.weigh_tokens(blocks, data.tokenizer.vocab_size, settings.rarity)

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

  return block_task.make_task(
    config,
    data,
    blocks=blocks,
    read=read,
    settings=f'{layout} {sorted(settings.items())}',
    loss=mlm.loss,
    part='encoder',
    row_tokens=layout.joint_length,
  )


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  block_task.run(make_task, config, workdir)


if __name__ == '__main__':
  command.main(run, computes=True)
