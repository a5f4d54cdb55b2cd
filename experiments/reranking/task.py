# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The cross-encoder as a task of the training loop (Nogueira and Cho 2019).

For questions the positive is the first block with an answer that a retriever finds, the
negatives are blocks of the same lists without one. For chunks of RETRO the positive is
the candidate that shares most tokens with the text that follows the chunk.
"""

from collections.abc import Mapping
import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from experiments.engine import loop, tasks
from experiments.open_qa import mining
from experiments.reranking import config as config_lib, examples
from realm_jax.data import folder as realm_data
from realm_jax.nn import initialize
from realm_jax.trained import model_configs, packaged
from retrieval import tokenization
from retrieval.nn import bert, cross_encoder, means, trained_encoders
from retrieval.store import manifests

FOLDER = 'examples'  # in the run's folder
Config = config_lib.Config


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`."""
  if not config.examples.run:
    raise ValueError(
      "config.examples.run='': expected the folder of a run whose blocks or "
      'chunks are ranked, as experiments.ask --packaged makes it.'
    )
  loop.train(make_task(config, workdir), config, workdir)


def make_task(config: Config, workdir: str | os.PathLike) -> tasks.Task:
  """Bind the cross-encoder, the localized contrastive loss and the examples."""
  folder, settings = pathlib.Path(workdir), config.examples
  tokenizer = _take_tokenizer(config, folder)
  model, layout = config.model, config.layout
  if model.vocab_size != tokenizer.vocab_size:
    raise ValueError(
      f'config.model.vocab_size={model.vocab_size}: expected '
      f'{tokenizer.vocab_size}, the word pieces of {config.tokenizer!r}.'
    )
  kinds = {'questions': examples.of_questions, 'chunks': examples.of_chunks}
  find = functools.partial(kinds[settings.kind], config, folder / FOLDER)
  splits = mining.make_splits(config, find)
  tokens = config.batch_size * (1 + settings.num_negatives) * layout.row_length
  identity = [*splits.identity, str(layout), settings.num_negatives]
  return tasks.Task(
    init=functools.partial(_init, start=config.start, model=model),
    init_on_host=True,
    shapes=functools.partial(_random, model=model),
    loss=functools.partial(
      loss, cross_encoder.CrossEncoder(model), tokenizer.sep_id
    ),
    dataset=splits.dataset(
      config,
      lambda pairs: functools.partial(
        examples.read_rows, pairs, tokenizer, layout, settings.num_negatives
      ),
    ),
    pipeline_fingerprint=manifests.fingerprint(identity),
    tokens_per_step=tokens,
    flops_per_step=3 * bert.flops_per_token(model, layout.row_length) * tokens,
    fingerprints={trained_encoders.TOKENIZER: tokenizer.fingerprint},
  )


def loss(
  model: cross_encoder.CrossEncoder,
  sep_id: int,
  params: tasks.Params,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
) -> tuple[means.Mean, tasks.Means]:
  """`cross_encoder.localized_contrastive` of a batch of `examples.read_rows`."""
  ids, valid = batch['ids'], batch['valid']
  rows = ids.reshape(-1, ids.shape[-1])
  mask, types = bert.segments(rows, batch['lengths'].reshape(-1), sep_id)
  rngs = {'dropout': key} if train else None
  scores = model.apply(
    {'params': params}, rows, mask, types, train=train, rngs=rngs
  )
  return cross_encoder.localized_contrastive(scores.reshape(valid.shape), valid)


def _take_tokenizer(
  config: Config, folder: pathlib.Path
) -> tokenization.WordPieceTokenizer:
  """Load the tokenizer and save it in the run's folder."""
  tokenizer = tokenization.WordPieceTokenizer(
    realm_data.tokenizer_path(config.tokenizer)
  )
  if not jax.process_index():
    tokenizer.save(folder / trained_encoders.TOKENIZER)
  return tokenizer


def _random(key: jax.Array, *, model: bert.BertConfig) -> tasks.Params:
  ids = jnp.zeros((1, 3), jnp.int32)
  module = cross_encoder.CrossEncoder(model)
  return module.init(key, ids, ids == 0, ids)['params']


def _init(
  key: jax.Array, *, start: str, model: bert.BertConfig
) -> tasks.Params:
  """Return initial parameters, boxed, with the BERT that config.start names."""
  params = jax.jit(functools.partial(_random, model=model))(key)
  if not start:
    return params
  if start == model_configs.PACKAGED:
    start = packaged.load_params('reader')['reader']['bert']
  else:
    path = realm_data.checkpoint_path(start)
    start = initialize.load_encoder(path, model)['bert']
  start = jax.tree.map(np.asarray, start)
  start.pop('pooler', None)
  return initialize.replace(params, {'bert': start}, ['bert'])
