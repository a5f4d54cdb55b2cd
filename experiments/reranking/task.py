# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The cross-encoder as a Task for the training loop."""

from collections.abc import Mapping
import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.engine import tasks
from experiments.reranking import examples as examples_lib
from realm_jax.data import block_dataset, folder as realm_data
from realm_jax.nn import initialize
from realm_jax.serving import packaged
from retrieval import tokenization
from retrieval.nn import (
  bert,
  cross_encoder,
  cross_reranker,
  trained_encoders,
)
from retrieval.store import store

FOLDER = 'examples'  # in the run's folder
Config = ml_collections.ConfigDict


def make_task(config: Config, workdir: str | os.PathLike) -> tasks.Task:
  """Bind the cross-encoder, the localized contrastive loss and the examples.

  Raises:
    FileNotFoundError: if config.examples.run is no run.
    ValueError: for settings that do not fit each other.
  """
  folder, settings = pathlib.Path(workdir), config.examples
  tokenizer = _take_tokenizer(config, folder)
  model_cfg = cross_reranker.bert_config(config)
  layout = cross_reranker.pair_layout(config)
  if model_cfg.vocab_size != tokenizer.vocab_size:
    raise ValueError(
      f'config.model.vocab_size={model_cfg.vocab_size}: expected '
      f'{tokenizer.vocab_size}, the word pieces of {config.tokenizer!r}.'
    )
  pairs = 1 + settings.num_negatives
  splits = _make_splits(config, folder / FOLDER)

  def dataset(split):
    found, source = splits[split]
    read = functools.partial(
      examples_lib.read_rows, found, tokenizer, layout, settings.num_negatives
    )
    return block_dataset.make_dataset(
      read,
      source,
      endless=split == 'train',
      batch_size=config.batch_size,
      seed=config.seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )

  length = layout.row_length
  tokens = config.batch_size * pairs * length
  found = [
    f'{found.fingerprint} {source!r}' for found, source in splits.values()
  ]
  identity = [*found, str(layout), settings.num_negatives]
  return tasks.Task(
    init=functools.partial(_init, config=config, model_cfg=model_cfg),
    init_on_host=True,
    shapes=functools.partial(_random, model_cfg=model_cfg),
    loss=functools.partial(
      loss, cross_encoder.CrossEncoder(model_cfg), tokenizer.sep_id
    ),
    dataset=dataset,
    pipeline_fingerprint=store.fingerprint(identity),
    tokens_per_step=tokens,
    flops_per_step=3 * bert.flops_per_token(model_cfg, length) * tokens,
    fingerprints={trained_encoders.TOKENIZER: tokenizer.fingerprint},
  )


def loss(
  model: cross_encoder.CrossEncoder,
  sep_id: int,
  params: tasks.Params,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
) -> tuple[jax.Array, tasks.Metrics]:
  """`cross_encoder.localized_contrastive` of a batch of `examples.read_rows`."""
  ids, valid = batch['ids'], batch['valid']
  rows = ids.reshape(-1, ids.shape[-1])
  mask, types = cross_encoder.segments(
    rows, batch['lengths'].reshape(-1), sep_id
  )
  rngs = {'dropout': key} if train else None
  scores = model.apply(
    {'params': params}, rows, mask, types, train=train, rngs=rngs
  )
  return cross_encoder.localized_contrastive(scores.reshape(valid.shape), valid)


def _take_tokenizer(
  config: Config, folder: pathlib.Path
) -> tokenization.WordPieceTokenizer:
  """Load the tokenizer and keep it beside the checkpoints."""
  tokenizer = tokenization.WordPieceTokenizer(
    realm_data.tokenizer_path(config.tokenizer)
  )
  if not jax.process_index():
    tokenizer.save(folder / trained_encoders.TOKENIZER)
  return tokenizer


def _make_splits(
  config: Config, folder: pathlib.Path
) -> dict[str, tuple[examples_lib.Examples, block_dataset.Split]]:
  """Return split -> all examples, and the numbers of the split's."""
  if config.examples.kind == 'chunks':
    train = examples_lib.of_chunks(config, folder)
  else:
    train = examples_lib.of_questions(config, folder, 'train')
    if config.questions.dev:
      dev = examples_lib.of_questions(config, folder, 'dev')
      return {
        'train': (train, train.split('all', 0.0)),
        'valid': (dev, dev.split('all', 0.0)),
      }
  names = ['train'] + ['valid'] * bool(config.eval_batches)
  return {
    name: (train, train.split(name, config.valid_fraction)) for name in names
  }


def _random(key: jax.Array, *, model_cfg: bert.BertConfig) -> tasks.Params:
  ids = jnp.zeros((1, 3), jnp.int32)
  model = cross_encoder.CrossEncoder(model_cfg)
  return model.init(key, ids, ids == 0, ids)['params']


def _init(
  key: jax.Array, *, config: Config, model_cfg: bert.BertConfig
) -> tasks.Params:
  """Return initial parameters, boxed, with the BERT that config.start names."""
  params = jax.jit(functools.partial(_random, model_cfg=model_cfg))(key)
  if not config.start:
    return params
  if config.start == packaged.NAME:
    start = packaged.load_params('reader')['reader']['bert']
  else:
    path = realm_data.checkpoint_path(config.start)
    start = initialize.load_encoder(path, model_cfg)['bert']
  start = jax.tree.map(np.asarray, start)
  start.pop('pooler', None)
  return initialize.replace(params, {'bert': start}, ['bert'])
