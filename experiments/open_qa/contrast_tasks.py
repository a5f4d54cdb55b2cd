# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Retrievers trained on questions and blocks that answer them: DPR and ColBERT.

Karpukhin et al. 2020; Khattab and Zaharia 2020. BM25 finds the blocks once, under
DATA/dpr. REALM and question answering start from the embedder of DPR by
--config.embedder_from=DIR. ColBERT's tokenizer lies beside the checkpoints, so that
`colbert.load` needs the run's folder alone.
"""

import dataclasses
import functools
import pathlib

from absl import logging
import jax
import jax.numpy as jnp

from experiments.engine import loop, tasks
from experiments.open_qa import config as config_lib, mining
from experiments.realm import prepare, recall, task as realm_task
from realm_jax.data import folder as realm_data
from realm_jax.nn import initialize
from realm_jax.objectives import dpr, late_interaction
from realm_jax.trained import model_configs
from retrieval.nn import colbert, trained_encoders
from retrieval.questions import question_sets
from retrieval.store import manifests

FOLDER = 'dpr'
Config = config_lib.DprConfig | config_lib.ColbertConfig


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`; ColBERT's data are prepared, if need be."""
  data = realm_data.DataFolder.of(config, workdir)
  if config.task == 'dpr':
    task = make_dpr_task(config, data)
  else:
    question_sets.check_questions(config)
    if not config.data_dir:
      prepare.prepare(config, workdir)
    config = with_sizes(config, data.tokenizer.vocab_size)
    task = make_colbert_task(config, data)
    if not jax.process_index():
      data.tokenizer.save(pathlib.Path(workdir) / trained_encoders.TOKENIZER)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


def make_splits(config: Config, data: realm_data.DataFolder) -> mining.Splits:
  """Find the examples of training and of validation."""
  realm_task.check_whole_batch(config, 'dpr')

  def find(name):
    return mining.mine(
      data.path(FOLDER),
      question_sets.of_field(config.questions, name),
      data.blocks,
      recall.words(data),
      depth=config.dpr.depth,
      num_hard_negatives=config.dpr.num_hard_negatives,
    )

  return mining.make_splits(config, find)


def make_dpr_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Return the task of the embedder."""
  layout = dataclasses.replace(
    data.layout(config), query_length=config.question_length
  )
  encode = data.tokenizer.encode_ids_batch
  splits = make_splits(config, data)
  blocks = 1 + splits.examples['train'].negatives.shape[1]

  def read(examples):
    return lambda numbers, _: dpr.read_rows(layout, examples, encode, numbers)

  return realm_task.part_task(
    config,
    data,
    part='embedder',
    loss=realm_task.in_batch_loss(dpr.loss, config.dpr),
    dataset=splits.dataset(config, read),
    fingerprint=manifests.fingerprint([*splits.identity, str(layout)]),
    row_tokens=layout.query_length + blocks * layout.block_length,
  )


def with_sizes(
  config: config_lib.ColbertConfig, vocab_size: int
) -> config_lib.ColbertConfig:
  """Return the config with config.bert, all fields of the BERT to train."""
  bert = model_configs.bert_config(config.embedder, vocab_size)
  return dataclasses.replace(
    config, bert=dataclasses.replace(bert, pooler=False)
  )


def _init_colbert(
  key: jax.Array, *, path: str, model: colbert.Colbert
) -> tasks.Params:
  """Return parameters, boxed: BERT of the checkpoint, a random linear map."""
  ids = jnp.zeros((1, 2), jnp.int32)
  params = jax.jit(model.init)(key, ids, ids == 0)['params']
  if not path:
    return params
  folder = realm_data.checkpoint_path(path)
  start = initialize.load_encoder(folder, model.config)
  return initialize.replace(params, {'bert': start['bert']}, ['bert'])


def make_colbert_task(
  config: config_lib.ColbertConfig, data: realm_data.DataFolder
) -> tasks.Task:
  """Return the task of a config of `with_sizes`."""
  settings = config.colbert
  longest = max(settings.query_length, settings.passage_length)
  if longest > config.bert.max_length:
    raise ValueError(
      f'config.colbert: rows of {longest} tokens, expected at most the '
      f'{config.bert.max_length} position embeddings of config.embedder.'
    )
  model = colbert.Colbert(config.bert, settings.vector_size)
  rows = colbert.Rows(settings, data.tokenizer)
  splits = make_splits(config, data)
  blocks = 1 + splits.examples['train'].negatives.shape[1]
  row_tokens = settings.query_length + blocks * settings.passage_length
  loss = realm_task.in_batch_loss(late_interaction.loss, config.dpr)
  return tasks.Task(
    init=functools.partial(
      _init_colbert, path=config.embedder.checkpoint, model=model
    ),
    init_on_host=True,
    loss=functools.partial(loss, model),
    dataset=splits.dataset(
      config, functools.partial(late_interaction.reader, rows)
    ),
    pipeline_fingerprint=manifests.fingerprint(
      [*splits.identity, settings.identity()]
    ),
    tokens_per_step=config.batch_size * row_tokens,
    fingerprints=data.fingerprints(),
  )
