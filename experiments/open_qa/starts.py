# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Parameters with which training of a reader starts."""

import dataclasses

from absl import logging
import jax
import ml_collections

from experiments.engine import command, tasks
from experiments.realm import task as realm_task
from realm_jax.data import folder as realm_data
from realm_jax.nn import config as config_lib, initialize, open_qa
from realm_jax.objectives import claims
from realm_jax.serving import (
  index_folders,
  model_configs,
  packaged,
  trained_models,
)
from retrieval.index import index_versions
from retrieval.nn import sharding
from retrieval.store import checkpoints


def with_realm_from(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """Return the config with `realm_from` in place of starts that are not set."""
  if not config.realm_from:
    return config
  both = {
    name: config.realm_from
    for name in ('embedder_from', 'encoder_from')
    if config[name] in ('', packaged.NAME)
  }
  return command.changed(config, **both)


def init_params(
  key: jax.Array,
  *,
  config: ml_collections.ConfigDict,
  model_cfg: open_qa.OpenQaConfig | claims.ClaimsConfig,
) -> tasks.Params:
  """Return initial parameters, boxed with their logical axes."""
  starts = realm_task.start_sources(with_realm_from(config))
  of_claims = isinstance(model_cfg, claims.ClaimsConfig)
  model = claims if of_claims else open_qa
  return model.init_params(key, model_cfg, **starts)


def kept_embedder(
  config: ml_collections.ConfigDict, model_cfg: config_lib.RealmConfig
) -> dict | None:
  """Return the embedder of an index that a run keeps from an earlier run.

  An earlier run that trained the questions' side alone kept the index of its
  own start. A run that starts from it keeps this index, too, unless it trains
  the blocks' side. None: the run builds its own index.

  Raises:
    FileNotFoundError: if the index of the earlier run is missing.
  """
  run = with_realm_from(config).embedder_from
  if run in ('', packaged.NAME) or config.train_blocks:
    return None
  saved = checkpoints.find(run)
  if not saved.index_version or saved.config.get('train_blocks', True):
    return None
  folder = index_folders.index_folder(run) / saved.index_version
  logging.info('The index stays that of %s.', folder)
  params = index_versions.read_snapshot(folder)
  return initialize.trained_embedders(params, model_cfg)


def untrained(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> trained_models.TrainedReader:
  """Return the model before training."""
  model_cfg = model_configs.reader_config(config, data.tokenizer.vocab_size)
  key = jax.random.split(jax.random.key(config.seed))[0]
  params = sharding.unbox(init_params(key, config=config, model_cfg=model_cfg))
  found = trained_models.of_params(config, data, params, 0)
  return dataclasses.replace(
    found, block_params=kept_embedder(config, model_cfg.realm)
  )


def freeze(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Return the config with a learning rate of 0 for parts without gradient.

  Weight decay would shrink these parts. The scale of 'embedder' becomes that of
  both embedders where there are two; the scale of an embedder that the model
  does not have is dropped.
  """
  shared = config.model.share_embedders
  parts = initialize.embedders(shared)
  scales = dict(config.optimizer.part_scales)
  if 'embedder' in scales:
    scales = {name: scales['embedder'] for name in parts} | scales
  for name in {*initialize.embedders(not shared)} - {*parts}:
    scales.pop(name, None)
  frozen = parts
  if config.retriever == 'dense':
    learns = config.train_blocks or shared
    frozen = () if learns else ('block_embedder',)
  scales |= {name: 0.0 for name in frozen}
  if scales == dict(config.optimizer.part_scales):
    return config
  changed = command.changed(config)
  with changed.unlocked():
    changed.optimizer.part_scales = scales
  return changed
