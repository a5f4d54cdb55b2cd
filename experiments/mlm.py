# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains REALM's encoder as a masked language model, before it reads documents.

  python -m experiments.mlm --config=configs/<name>.py:mlm \
    --config.data_dir=DATA --workdir=DIR

For checkpoints without a trained head, such as all-MiniLM-L6-v2. REALM takes the
encoder over with --config.encoder_from=DIR.
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
    What the loop trains: {'encoder': ...}.
  """
  layout = data.layout(config)
  model_cfg = realm_task.model_config(config, data)
  masker = mlm.Masker(layout=layout, vocab_size=data.tokenizer.vocab_size)

  def dataset(split: str):
    return mlm.make_dataset(
      masker,
      data.masked_blocks,
      split=split,
      valid_fraction=config.valid_fraction,
      batch_size=config.batch_size,
      seed=config.seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )

  def init(key):
    params = realm_task.init_params(key, config=config, model_cfg=model_cfg)
    return {'encoder': params['encoder']}

  return tasks.Task(
    init=init,
    loss=functools.partial(mlm.loss, model_lib.Encoder(model_cfg.encoder)),
    dataset=dataset,
    pipeline_fingerprint=block_dataset.fingerprint(
      data.masked_blocks, masker, config.valid_fraction
    ),
    tokens_per_step=config.batch_size * layout.block_length,
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
