# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks that train a part of REALM on blocks alone: ICT and MLM."""

from collections.abc import Callable
import functools

from absl import logging
import jax
import ml_collections

from experiments.engine import loop
from experiments.engine import tasks
from experiments.realm import task as realm_task
from realm_jax.data import block_dataset
from realm_jax.data import folder as realm_data
from realm_jax.nn import config as config_lib
from realm_jax.nn import realm as model_lib
from retrieval.text import blocks as blocks_lib

Config = ml_collections.ConfigDict
MakeTask = Callable[[Config, realm_data.DataFolder], tasks.Task]


def check_whole_batch(config: Config, section: str) -> None:
  """Raises ValueError if microbatches would cut a loss's negatives down."""
  if config.optimizer.accumulate_steps != 1:
    raise ValueError(
      'optimizer.accumulate_steps must be 1: microbatches would cut the '
      f'negatives down; use {section}.gradient_cache_parts.'
    )


def make_task(
  config: Config,
  data: realm_data.DataFolder,
  *,
  blocks: blocks_lib.BlockStore,
  read: block_dataset.Read,
  settings: str,
  loss: Callable,
  part: str,
  row_tokens: int,
) -> tasks.Task:
  """Binds a part of the model, its loss and its data.

  Args:
    config: of the experiment.
    data: where the stores lie.
    blocks: what batches are made of.
    read: makes them.
    settings: what else decides what `read` makes.
    loss: (model, params, batch, key, train) -> (loss, metrics).
    part: 'embedder' or 'encoder'.
    row_tokens: of an example.

  Returns:
    What the loop trains.
  """
  model = realm_task.model_config(config, data)
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
    init=_init(config, data, model, part),
    init_on_host=True,
    loss=functools.partial(loss, model_lib.Realm(model)),
    dataset=lambda split: dataset(split=split),
    pipeline_fingerprint=block_dataset.fingerprint(
      blocks, config.valid_fraction, settings
    ),
    tokens_per_step=config.batch_size * row_tokens,
    fingerprints=data.fingerprints(),
  )


def _init(
  config: Config,
  data: realm_data.DataFolder,
  model: config_lib.RealmConfig,
  part: str,
) -> Callable[[jax.Array], tasks.Params]:
  head = None
  if part == 'encoder':
    head = realm_task.fitted_head(config, data, model)
  return functools.partial(
    realm_task.init_params,
    config=config,
    model_cfg=model,
    parts=part,
    fitted_head=head,
  )


def run(make: MakeTask, config: Config, workdir: str) -> None:
  """Trains a task until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  task = make(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)
