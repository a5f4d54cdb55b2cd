# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO and its baseline as a Task for the training loop."""

import functools
from typing import Any

from absl import logging
from flax import traverse_util
import jax
import numpy as np

from experiments.engine import loop, tasks
from experiments.retro.config import Config
from retrieval.nn import sharding
from retrieval.store import manifests
from retro_jax.data import folder as retro_data, pipeline
from retro_jax.nn import (
  config as config_lib,
  copy_init,
  initial,
  losses,
  models,
  presets,
  stack,
)
from retro_jax.trained import loading

_FIT_TOKENS = 4096  # that the lookup of a RETROfit is fitted to


def _trained(
  field: str,
  config: Config,
  model_cfg: config_lib.RetroConfig,
  data: retro_data.DataFolder,
) -> tuple[loading.RunConfig, tasks.Params]:
  """Load the run that a field names: its config, and its parameters on the host."""
  source = getattr(config, field)
  run = loading.load(source, str(data.root))
  try:
    initial.check_fits(model_cfg, run.model.config)
  except ValueError as error:
    raise ValueError(f'config.{field} {source}: {error}.') from None
  logging.info('The start: %s, step %d.', source, run.step)
  return run.config, jax.tree.map(np.asarray, run.params)


def _continued_params(
  key: jax.Array,
  *,
  config: Config,
  model_cfg: config_lib.RetroConfig,
  data: retro_data.DataFolder,
) -> tasks.Params:
  """Parameters of `config.start_from` that this model has, too.

  To those of a baseline retrieval is added anew.
  """
  trained, params = _trained('start_from', config, model_cfg, data)
  if config.retrieval and not trained.retrieval:
    params, _, _ = initial.extend(key, model_cfg, params)
  init = functools.partial(initial.flat_params, config=model_cfg)
  params = traverse_util.flatten_dict(params, sep='/')
  shapes = traverse_util.flatten_dict(
    sharding.unbox(jax.eval_shape(init, key)), sep='/'
  )
  for name, x in shapes.items():
    shape = params[name].shape if name in params else 'none'
    if shape != x.shape:
      raise ValueError(
        f'config.start_from {config.start_from}: {name} has shape {shape}, '
        f'expected {x.shape}.'
      )
  params = {name: params[name] for name in shapes}
  return stack.for_training(
    model_cfg, traverse_util.unflatten_dict(params, sep='/')
  )


def _retrofit_params(
  key: jax.Array,
  *,
  config: Config,
  model_cfg: config_lib.RetroConfig,
  data: retro_data.DataFolder,
) -> tasks.Params:
  """The decoder of `config.retrofit_from` with a new encoder and new CCAs."""
  trained, baseline = _trained('retrofit_from', config, model_cfg, data)
  if trained.retrieval:
    raise ValueError(
      f'config.retrofit_from {config.retrofit_from}: is a RETRO itself '
      '(retrieval=True); expected its baseline, a decoder trained without '
      'retrieval.'
    )
  params, _, _ = initial.extend(key, model_cfg, baseline)
  if model_cfg.copy_init:
    row = jax.device_put(_some_rows(config, model_cfg, data))
    params = copy_init.fit_queries(
      params, model_cfg, row['tokens'], row['segment_ids']
    )
  return stack.for_training(model_cfg, params)


def _some_rows(config, model_cfg, data):
  """Training rows, evenly spread, with enough tokens for `copy_init.fit_queries`."""
  reader = loading.chunk_reader(config, data, 'train', 0)
  length = config.sequence_chunks
  rows = -(-_FIT_TOKENS // (length * model_cfg.chunk_length))
  last = max(reader.num_chunks - length, 0)
  ids = np.linspace(0, last, rows).astype(int)[:, None] + np.arange(length)
  return reader.read(np.where(ids < reader.num_chunks, ids, -1))


def _start(config, model_cfg, data) -> dict[str, Any]:
  """Return the task's fields of initial and of frozen parameters."""
  new = functools.partial(initial.init_params, config=model_cfg)
  of_run = {'config': config, 'model_cfg': model_cfg, 'data': data}
  if config.start_from:
    if config.retrofit_from:
      raise ValueError(
        f'config.start_from {config.start_from}: expected empty beside '
        f'config.retrofit_from {config.retrofit_from}.'
      )
    init = functools.partial(_continued_params, **of_run)
    return {'init': init, 'init_on_host': True, 'shapes': new}
  if not config.retrofit_from:
    return {'init': new}
  if not model_cfg.cca_layers:
    raise ValueError(
      f'config.retrofit_from {config.retrofit_from}: nothing would be trained '
      'without chunked cross-attention; expected retrieval=True and cca_layers.'
    )
  return {
    'init': functools.partial(_retrofit_params, **of_run),
    'init_on_host': True,
    'shapes': new,
    'frozen': lambda name: not initial.is_added(name),
    'flops_per_step': 0.0,  # less than three forward passes
  }


def model_fields(
  config: Config,
  model_cfg: config_lib.RetroConfig,
  num_neighbors: int,
  length: int = 0,
) -> dict[str, Any]:
  """Fields of a task that need no data; 0 is the length of the config's rows."""
  length = length or config.sequence_chunks * model_cfg.chunk_length
  tokens = config.batch_size * length
  forward = presets.flops_per_token(model_cfg, length, num_neighbors)
  return {
    'loss': functools.partial(losses.loss, models.of(model_cfg)),
    'tokens_per_step': tokens,
    'flops_per_step': 3 * forward * tokens,
  }


def without_data(
  config: Config,
) -> tuple[tasks.Task, dict[str, jax.ShapeDtypeStruct]]:
  """Return a task that can be compiled, with the shapes of its batches.

  The vocabulary has the size that `config.tokenizer` is to have.
  """
  model_cfg = loading.model_config(config, config.tokenizer.vocab_size)
  k = config.num_neighbors if config.retrieval else 0
  shapes = pipeline.batch_shapes(
    config.batch_size,
    config.sequence_chunks,
    model_cfg.chunk_length,
    k,
    model_cfg.neighbor_length,
  )
  fields = model_fields(config, model_cfg, k)
  if config.retrofit_from:
    fields['frozen'] = lambda name: not initial.is_added(name)
  init = functools.partial(initial.init_params, config=model_cfg)
  task = tasks.Task(init=init, dataset=tasks.no_data, **fields)
  return task, shapes


def used_splits(config: Any, data: retro_data.DataFolder) -> list[str]:
  """Splits that a run reads: 'train', and 'valid' where it validates.

  Raises:
    ValueError: for a run that validates on data without held-out documents.
  """
  if not config.eval_batches:
    return ['train']
  splits = data.corpus_splits
  if 'train' in splits and 'valid' not in splits:
    raise ValueError(
      f'{data.root} holds no documents out (valid_fraction=0), but '
      f'config.eval_batches={config.eval_batches}: expected 0.'
    )
  return ['train', 'valid']


def make_task(config: Config, data: retro_data.DataFolder) -> tasks.Task:
  """Bind model, loss and data."""
  model_cfg = loading.model_config_of(config, data)
  start = _start(config, model_cfg, data)
  if config.reading.train:
    from experiments.retro import reading  # the rows of few runs

    rows, length = reading.fields(config, model_cfg, data)
    fields = model_fields(config, model_cfg, config.num_neighbors, length)
    return tasks.Task(**fields | rows | start)
  readers = {
    split: loading.chunk_reader(config, data, split)
    for split in used_splits(config, data)
  }
  k = readers['train'].num_neighbors

  def dataset(split: str):
    return pipeline.make_dataset(
      readers[split],
      sequence_chunks=config.sequence_chunks,
      train=split == 'train',
      num_workers=config.num_workers if split == 'train' else 0,
      **tasks.share_of(config),
    )

  fields = model_fields(config, model_cfg, k) | {
    'dataset': dataset,
    'pipeline_fingerprint': manifests.fingerprint(
      {
        'reader': readers['train'].fingerprint,
        'sequence_chunks': config.sequence_chunks,
      }
    ),
    'index_version': data.neighbors_index if config.retrieval else '',
    'fingerprints': data.fingerprints(config.retrieval),
  }
  return tasks.Task(**fields | start)


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`."""
  data = retro_data.DataFolder.of(config, workdir)
  task = make_task(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)
