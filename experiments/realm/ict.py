# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a retriever by the inverse cloze task: REALM's and ORQA's warm start.

  python -m experiments.realm.ict --config=configs/<name>.py:ict \
    --config.data_dir=DATA --workdir=DIR

REALM takes its embedder over with --config.embedder_from=DIR. The negatives of a row
are all other blocks of the global batch; large batches fit on one device in
--config.ict.gradient_cache_parts parts.
"""

import dataclasses
import functools

import ml_collections

from experiments.engine import command
from experiments.engine import tasks
from experiments.realm import block_task
from realm_jax.data import folder as realm_data
from realm_jax.objectives import ict


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
  block_task.check_whole_batch(config, 'ict')
  settings = config.ict
  layout = dataclasses.replace(
    data.layout(config), query_length=settings.query_length
  )

  def read(ids, rng):
    return ict.read_rows(layout, data.blocks, ids, rng, settings.mask_rate)

  return block_task.make_task(
    config,
    data,
    blocks=data.blocks,
    read=read,
    settings=f'{layout} {settings.mask_rate}',
    loss=functools.partial(
      ict.loss,
      num_chunks=settings.gradient_cache_parts,
      mask_duplicates=settings.mask_duplicates,
    ),
    part='embedder',
    row_tokens=layout.query_length + layout.block_length,
  )


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  block_task.run(make_task, config, workdir)


if __name__ == '__main__':
  command.main(run, computes=True)
