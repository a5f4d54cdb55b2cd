# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Task of late interaction, trained on questions and blocks that answer them (ColBERT).

Khattab and Zaharia 2020. Examples are those of `dpr_task`; BERT is config.embedder.
The tokenizer is kept beside the checkpoints, so that `colbert_encoder.load` needs the
run's folder alone.
"""

import dataclasses
import functools
import os
import pathlib

from absl import logging
import jax
import jax.numpy as jnp
import ml_collections

from experiments.engine import command, loop, tasks
from experiments.open_qa import dpr_task
from experiments.realm import block_task
from realm_jax.data import block_dataset, folder as realm_data
from realm_jax.nn import initialize
from realm_jax.objectives import late_interaction
from realm_jax.serving import model_configs
from retrieval import settings as settings_lib
from retrieval.nn import (
  bert,
  colbert,
  trained_encoders,
)
from retrieval.store import store

Config = ml_collections.ConfigDict


def with_sizes(config: Config, vocab_size: int) -> Config:
  """Return the config with config.bert, all fields of the BERT to train."""
  found = model_configs.bert_config(config.embedder, vocab_size)
  sizes = dataclasses.asdict(dataclasses.replace(found, pooler=False))
  return command.changed(config, bert=sizes)


def _models(config: Config) -> tuple[colbert.ColbertConfig, colbert.Colbert]:
  cfg = settings_lib.build(
    colbert.ColbertConfig, {**config.colbert}, 'config.colbert'
  )
  encoder = settings_lib.build(bert.BertConfig, {**config.bert}, 'config.bert')
  longest = max(cfg.query_length, cfg.passage_length)
  if longest > encoder.max_length:
    raise ValueError(
      f'config.colbert: rows of {longest} tokens, expected at most the '
      f'{encoder.max_length} position embeddings of config.embedder.'
    )
  return cfg, colbert.Colbert(encoder, cfg.vector_size)


def init_params(
  key: jax.Array, *, config: Config, model: colbert.Colbert
) -> tasks.Params:
  """Return initial parameters, boxed: BERT of the checkpoint, a random linear map."""
  ids = jnp.zeros((1, 2), jnp.int32)
  params = jax.jit(model.init)(key, ids, ids == 0)['params']
  if not (path := config.embedder.checkpoint):
    return params
  folder = realm_data.checkpoint_path(path)
  start = initialize.load_encoder(folder, model.config)
  return initialize.replace(params, {'bert': start['bert']}, ['bert'])


def make_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Return the task of a config of `with_sizes`.

  Raises:
    ValueError: for settings that do not fit each other.
  """
  block_task.check_whole_batch(config, 'dpr')
  settings, (cfg, model) = config.dpr, _models(config)
  rows = colbert.Rows(cfg, data.tokenizer)
  splits = dpr_task.make_splits(config, data)
  blocks = 1 + splits['train'][0].negatives.shape[1]
  lengths = (cfg.query_length, *blocks * (cfg.passage_length,))

  def dataset(split):
    found, source = splits[split]
    return block_dataset.make_dataset(
      late_interaction.reader(rows, found),
      source,
      endless=split == 'train',
      batch_size=config.batch_size,
      seed=config.seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )

  found = [splits[name][0].fingerprint for name in splits]
  return tasks.Task(
    init=functools.partial(init_params, config=config, model=model),
    init_on_host=True,
    loss=functools.partial(
      late_interaction.loss,
      model,
      num_chunks=settings.gradient_cache_parts,
      mask_duplicates=settings.mask_duplicates,
    ),
    dataset=dataset,
    pipeline_fingerprint=store.fingerprint(
      [*found, repr(splits['train'][1]), dataclasses.asdict(cfg)]
    ),
    tokens_per_step=config.batch_size * sum(lengths),
    fingerprints=data.fingerprints(),
  )


def run(config: Config, workdir: str | os.PathLike) -> None:
  """Train until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  config = with_sizes(config, data.tokenizer.vocab_size)
  task = make_task(config, data)
  if not jax.process_index():
    data.tokenizer.save(pathlib.Path(workdir) / trained_encoders.TOKENIZER)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, str(workdir))
