# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a retriever by the inverse cloze task: REALM's and ORQA's warm start.

  python -m experiments.ict --config=configs/<name>.py:ict \
    --config.data_dir=DATA --workdir=DIR

REALM takes its embedder over with --config.embedder_from=DIR. The negatives of a row
are all other blocks of the global batch; large batches fit on one device in
--config.ict.gradient_cache_parts parts.
"""

import dataclasses
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
from realm_jax import ict
from realm_jax import model as model_lib


def make_task(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> tasks.Task:
  """Binds embedder, loss and data.

  Args:
    config: of the experiment.
    data: where the stores lie.

  Returns:
    What the loop trains.

  Raises:
    ValueError: for settings that do not fit each other.
  """
  if config.optimizer.accumulate_steps != 1:
    raise ValueError(
      'optimizer.accumulate_steps must be 1: microbatches would cut the '
      'negatives down; use ict.gradient_cache_parts.'
    )
  settings = config.ict
  layout = dataclasses.replace(
    data.layout(config), query_length=settings.query_length
  )
  model_cfg = realm_task.model_config(config, data)

  def read(ids, rng):
    return ict.read_rows(layout, data.blocks, ids, rng, settings.mask_rate)

  dataset = functools.partial(
    block_dataset.make_dataset,
    read,
    data.blocks,
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
      parts='embedder',
    ),
    init_on_host=True,
    loss=functools.partial(
      ict.loss,
      model_lib.Realm(model_cfg),
      num_chunks=settings.gradient_cache_parts,
      mask_duplicates=settings.mask_duplicates,
    ),
    dataset=lambda split: dataset(split=split),
    pipeline_fingerprint=block_dataset.fingerprint(
      data.blocks, layout, config.valid_fraction, settings.mask_rate
    ),
    tokens_per_step=config.batch_size
    * (layout.query_length + layout.block_length),
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
