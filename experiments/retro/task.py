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


def _loaded_params(key, *, config, model_cfg, data) -> tasks.Params:
  """Parameters of the named run that this model has, too, and new ones for the rest.

  A RETROfit adds an encoder and CCAs to the decoder of `config.retrofit_from`.
  """
  retrofit = config.retrofit_from
  source = retrofit or config.start_from
  name = f'config.{"retrofit" if retrofit else "start"}_from {source}'
  run = loading.load(source, str(data.root))
  try:
    initial.check_fits(model_cfg, run.model.config)
  except ValueError as error:
    raise ValueError(f'{name}: {error}.') from None
  if retrofit and run.config.retrieval:
    raise ValueError(
      f'{name}: is a RETRO itself (retrieval=True); expected its baseline, a decoder '
      'trained without retrieval.'
    )
  logging.info('The start: %s, step %d.', source, run.step)
  params, _, _ = initial.extend(
    key, model_cfg, jax.tree.map(np.asarray, run.params)
  )
  init = functools.partial(initial.flat_params, config=model_cfg)
  shapes = sharding.unbox(jax.eval_shape(init, key))
  flat = traverse_util.flatten_dict(params, sep='/')
  expected = traverse_util.flatten_dict(shapes, sep='/')
  for path in sorted({*flat, *expected}):
    ours, theirs = (
      getattr(x.get(path), 'shape', None) for x in (flat, expected)
    )
    if ours != theirs:
      raise ValueError(f'{name}: {path} has shape {ours}, expected {theirs}.')
  if retrofit and model_cfg.copy_init:
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
  start, retrofit = config.start_from, config.retrofit_from
  if start and retrofit:
    raise ValueError(
      f'config.start_from {start}: expected empty beside config.retrofit_from '
      f'{retrofit}.'
    )
  if retrofit and not model_cfg.cca_layers:
    raise ValueError(
      f'config.retrofit_from {retrofit}: nothing would be trained without chunked '
      'cross-attention; expected retrieval=True and cca_layers.'
    )
  if not start and not retrofit:
    return {'init': new}
  load = functools.partial(
    _loaded_params, config=config, model_cfg=model_cfg, data=data
  )
  fields = {'init': load, 'init_on_host': True, 'shapes': new}
  if retrofit:
    fields['frozen'] = lambda name: not initial.is_added(name)
    fields['flops_per_step'] = 0.0  # less than three forward passes
  return fields


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
  rows, chunks = config.batch_size, config.sequence_chunks
  names = 'tokens', 'targets', 'loss_mask', 'segment_ids'
  sizes = dict.fromkeys(names, (rows, chunks * model_cfg.chunk_length))
  if k:
    read = rows, chunks, k, model_cfg.neighbor_length
    sizes |= {'neighbors': read, 'neighbor_mask': read}
  shapes = {
    name: jax.ShapeDtypeStruct(size, '?' if name.endswith('mask') else 'i4')
    for name, size in sizes.items()
  }
  fields = model_fields(config, model_cfg, k)
  if config.retrofit_from:
    fields['frozen'] = lambda name: not initial.is_added(name)
  init = functools.partial(initial.init_params, config=model_cfg)
  task = tasks.Task(init=init, dataset=tasks.no_data, **fields)
  return task, shapes


def make_task(config: Config, data: retro_data.DataFolder) -> tasks.Task:
  """Bind model, loss and data.

  Raises:
    ValueError: for a run that validates on data without held-out documents.
  """
  model_cfg = loading.model_config_of(config, data)
  start = _start(config, model_cfg, data)
  if config.reading.train:
    from experiments.retro import reading  # the rows of few runs

    rows, length = reading.fields(config, model_cfg, data)
    fields = model_fields(config, model_cfg, config.num_neighbors, length)
    return tasks.Task(**fields | rows | start)
  used, there = ['train'], data.corpus_splits
  if config.eval_batches:
    used.append('valid')
    if 'train' in there and 'valid' not in there:
      raise ValueError(
        f'{data.root} holds no documents out (valid_fraction=0), but '
        f'config.eval_batches={config.eval_batches}: expected 0.'
      )
  readers = {x: loading.chunk_reader(config, data, x) for x in used}
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
    'index_version': data.neighbors('train').store.fields['index']
    if config.retrieval
    else '',
    'fingerprints': data.fingerprints(config.retrieval),
  }
  return tasks.Task(**fields | start)


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`."""
  data = retro_data.DataFolder.of(config, workdir)
  task = make_task(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)
