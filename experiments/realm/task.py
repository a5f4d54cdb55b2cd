# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM as a Task for the loop, and trained models to look into."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import os
import pathlib
from typing import Any

from absl import logging
import jax
import ml_collections

from experiments.engine import cluster, tasks
from experiments.realm import refresh, zero_shot
from realm_jax.data import folder as realm_data, pipeline, sources
from realm_jax.nn import (
  config as config_lib,
  head,
  initialize,
  realm as model_lib,
)
from realm_jax.objectives import losses
from realm_jax.serving import (
  index_builder,
  model_configs,
  packaged,
  serving,
  trained_models,
)
from retrieval.nn import sharding
from retrieval.store import checkpoints, executors, store

_SHOWN = 5  # names of parameters in a message


def start_sources(
  config: ml_collections.ConfigDict,
) -> dict[str, initialize.Source]:
  """Return what 'embedder' and 'encoder' start from, where that is set.

  Parameters of another run, or of the packaged retriever or reader, go before the
  folder of a BERT.
  """
  found = {}
  for name, part in (('embedder', 'embedder'), ('encoder', 'reader')):
    if (workdir := config[f'{name}_from']) == packaged.NAME:
      found[name] = packaged.load_params(part)
    elif workdir:
      found[name] = checkpoints.load_params(workdir)[0]
      _check_model(f'config.{name}_from={workdir}', found[name])
    elif path := config[name].checkpoint:
      found[name] = realm_data.checkpoint_path(path)
  return found


def _check_model(what: str, params: Mapping[str, Any]) -> None:
  """Raise ValueError for parameters of another kind of model."""
  known = {*initialize.EMBEDDERS, 'encoder', 'reader', 'classifier'}
  if not known >= {*params}:
    raise ValueError(
      f'{what}: a checkpoint with {sorted(params)[:_SHOWN]}, expected one of '
      'experiments.realm.train or experiments.open_qa.train.'
    )


def init_params(
  key: jax.Array,
  *,
  config: ml_collections.ConfigDict,
  model_cfg: config_lib.RealmConfig,
  parts: str = 'all',
  fitted_head: dict | None = None,
) -> tasks.Params:
  """Initial parameters, boxed with their logical axes."""
  params = initialize.init_params(
    key, model_cfg, **start_sources(config), parts=parts
  )
  if fitted_head is not None:
    start = {'encoder': {'mlm_head': fitted_head}}
    params = initialize.replace(params, start)
  return params


def fitted_head(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  model_cfg: config_lib.RealmConfig,
) -> dict | None:
  """A head for an encoder whose checkpoint has none, where that is wanted."""
  path = config.encoder.checkpoint
  if config.encoder_from or not (config.fit_head and path):
    return None
  folder = realm_data.checkpoint_path(path)
  found = initialize.load_encoder(folder, model_cfg.encoder_bert)
  if 'mlm_head' in found:
    return None
  logging.info('Fitting a masked-language-model head to %s.', folder)
  return head.fit(
    model_cfg.encoder_bert,
    found['bert'],
    data.layout(config),
    data.masked_blocks,
  )


def refresh_config(config: ml_collections.ConfigDict) -> refresh.RefreshConfig:
  """The schedule that a config names."""
  settings = refresh.RefreshConfig(**config.refresh)
  if settings.builder != 'auto':
    return settings
  if config.cluster.address:
    return dataclasses.replace(settings, builder='ray')
  on_cpu = jax.local_devices()[0].platform == 'cpu'
  return dataclasses.replace(
    settings, builder='process' if on_cpu else 'thread'
  )


def _workers(
  config: ml_collections.ConfigDict, workdir: str | os.PathLike
) -> executors.Executor | None:
  """Return the cluster that embeds the blocks of new indices, if there is one.

  Raises:
    ValueError: for refresh.builder 'ray' without a cluster, and for a cluster in
      one of several processes.
  """
  settings = refresh_config(config)
  if settings.schedule == 'async' and settings.builder != 'ray':
    return None
  if settings.builder == 'ray' and not config.cluster.address:
    raise ValueError(
      "refresh.builder='ray': config.cluster.address names no cluster."
    )
  if not config.cluster.address:
    return None
  if jax.process_count() > 1:
    raise ValueError(
      'config.cluster.address with config.distributed=True: a cluster builds the '
      'indices of a training of one process.'
    )
  return cluster.executor(config, workdir)


def builder_devices(config: ml_collections.ConfigDict) -> list[jax.Device]:
  """Local devices that build the index and do not train.

  Raises:
    ValueError: when none would be left to train.
  """
  settings = refresh_config(config)
  if settings.schedule != 'async' or settings.builder != 'thread':
    return []
  local = jax.local_devices()
  if settings.num_devices >= len(local):
    raise ValueError(
      f'refresh.num_devices={settings.num_devices} of {len(local)} local '
      'device(s): none would be left to train.'
    )
  return local[len(local) - settings.num_devices :]


def training_devices(config: ml_collections.ConfigDict) -> list[jax.Device]:
  """Return the devices that do not build the index."""
  builders = builder_devices(config)
  return [device for device in jax.devices() if device not in builders]


def source(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  split: str,
) -> sources.MaskedSentences:
  """Return the sentences that a split masks; log those left out."""
  data.check_masked(config)
  found = sources.MaskedSentences(
    data.masked_blocks,
    data.layout(config),
    sources.SourceConfig(
      masker=config.masker,
      split=split,
      valid_fraction=config.valid_fraction,
    ),
    data.spans if config.masker == 'salient' else None,
  )
  logging.info(
    'Split %r: %d blocks with something to mask; left out: %s.',
    split,
    len(found),
    found.skipped,
  )
  return found


def bind_loss(
  config: ml_collections.ConfigDict, model_cfg: config_lib.RealmConfig
) -> Callable:
  """Return the loss of a task."""
  model = model_lib.Realm(model_cfg)
  return functools.partial(losses.loss, model, **config.loss)


def make_task(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
  start_builder=None,
) -> tasks.Task:
  """Bind model, loss, data and index.

  Args:
    start_builder: starts the process of refresh.builder 'process'.
  """
  layout = data.layout(config)
  devices = tuple(builder_devices(config))
  builder = index_builder.make_builder(
    config, data, workdir, devices, _workers(config, workdir)
  )
  settings = refresh_config(config)
  index_refresher = refresh.Refresher(
    settings, builder, start_builder, _recall_measure(config, data, layout)
  )
  retrieval = pipeline.Retrieval(data.blocks, layout, index_refresher)
  sources = {s: source(config, data, s) for s in ('train', 'valid')}
  k, joint = layout.num_candidates, layout.joint_length
  row_tokens = layout.query_length + k * (layout.block_length + joint)

  def dataset(split: str):
    return pipeline.make_dataset(
      sources[split],
      retrieval,
      batch_size=config.batch_size,
      train=split == 'train',
      seed=config.seed,
      read_ahead=config.read_ahead,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )

  return tasks.Task(
    init=functools.partial(
      init_params,
      config=config,
      model_cfg=builder.model,
      fitted_head=fitted_head(config, data, builder.model),
    ),
    init_on_host=True,
    loss=bind_loss(config, builder.model),
    dataset=dataset,
    pipeline_fingerprint=store.fingerprint(
      [sources['train'].fingerprint, data.blocks.fingerprint, settings.identity]
    ),
    tokens_per_step=config.batch_size * row_tokens,
    fingerprints=data.fingerprints(),
    index_refresher=index_refresher,
  )


def _recall_measure(config, data, layout):
  """Zero-shot recall of each new index, where the config names questions."""
  settings = config.evaluate
  if not settings.during_training:
    return None
  if not settings.questions:
    raise ValueError('evaluate.during_training needs evaluate.questions.')

  def measure(index: serving.ServingIndex) -> dict[str, float]:
    def retrieve(texts, k):
      return index.retrieve_texts(texts, k, data.tokenizer, layout)

    rows = zero_shot.measure({'': retrieve}, data.blocks, settings)
    return {
      f'{pathlib.Path(row["questions_file"]).stem}/{row["rule"]}/{head}': row[
        head
      ]['mean']
      for row in rows
      for head in row
      if head.startswith('recall@')
    }

  return measure


def untrained(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> trained_models.TrainedRealm:
  """The model as training begins."""
  model_cfg = model_configs.realm_config(config, data.tokenizer.vocab_size)
  boxed = init_params(
    jax.random.split(jax.random.key(config.seed))[0],
    config=config,
    model_cfg=model_cfg,
    fitted_head=fitted_head(config, data, model_cfg),
  )
  return trained_models.of_params(config, data, sharding.unbox(boxed), 0)
