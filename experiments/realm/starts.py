# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Parameters that a training starts from (Guu et al. 2020, section 3.4)."""

from collections.abc import Callable
import os
from typing import Any

from absl import logging
import jax

from experiments.engine import tasks
from experiments.realm import config as config_lib
from realm_jax.data import folder as realm_data
from realm_jax.nn import config as nn_config, initialize
from realm_jax.trained import model_configs
from retrieval.nn import sharding
from retrieval.store import checkpoints, packed

_PARTS = {*initialize.EMBEDDERS, 'encoder', 'reader'}
_SHOWN = 5  # names of parameters in a message


def start_sources(config: config_lib.Run) -> dict[str, initialize.Source]:
  """Return the sources of 'embedder' and 'encoder' that the config sets.

  Parameters of another run, or of the packaged model, go before a BERT's folder.
  """
  sources = {}
  reads = 'encoder' if isinstance(config, config_lib.Config) else 'reader'
  for name, part in (('embedder', 'embedder'), ('encoder', reads)):
    run = getattr(config, f'{name}_from')
    if run == model_configs.PACKAGED:
      from realm_jax.trained import packaged

      sources[name] = packed.load_params(packaged.FOLDER, [part])
    elif run:
      sources[name] = checkpoints.load_params(run)[0]
      if unknown := {*sources[name]} - _PARTS:
        raise ValueError(
          f'config.{name}_from={run}: a checkpoint with '
          f'{sorted(unknown)[:_SHOWN]}, expected one of REALM or question '
          'answering.'
        )
    elif path := getattr(config, name).checkpoint:
      sources[name] = realm_data.checkpoint_path(path)
  return sources


def init(
  config: config_lib.Config,
  data: realm_data.DataFolder,
  model: nn_config.RealmConfig,
  parts: str = 'all',
) -> Callable[[jax.Array], tasks.Params]:
  """Return key -> initial parameters, boxed with their logical axes."""
  head = {}
  if parts != 'embedder':
    head = _fitted_head(config, data, model)

  def make(key):
    params = initialize.init_params(
      key, model, **start_sources(config), parts=parts
    )
    return initialize.replace(params, head)

  return make


def _fitted_head(
  config: config_lib.Config,
  data: realm_data.DataFolder,
  model: nn_config.RealmConfig,
) -> dict[str, Any]:
  """A head for an encoder that starts from a checkpoint without one."""
  if config.encoder_from or not config.encoder.checkpoint:
    return {}
  folder = realm_data.checkpoint_path(config.encoder.checkpoint)
  bert = model.encoder_bert
  loaded = initialize.load_encoder(folder, bert)
  if 'mlm_head' in loaded:
    return {}
  from realm_jax.nn import head

  logging.info('Fitting a masked-language-model head to %s.', folder)
  layout = data.layout(config)
  fitted = head.fit(bert, loaded['bert'], layout, data.masked_blocks)
  return {'encoder': {'mlm_head': fitted}}


def untrained(
  config: config_lib.Config,
  data: realm_data.DataFolder,
  index_folder: str | os.PathLike = '',
) -> Any:
  """Return the model as training begins: a `realm.TrainedRealm`."""
  from realm_jax.trained import loading  # training needs none

  model = model_configs.realm_config(config, data.tokenizer.vocab_size)
  key = jax.random.split(jax.random.key(config.seed))[0]
  params = sharding.unbox(init(config, data, model)(key))
  return loading.of_params(config, data, params, 0, index_folder)
