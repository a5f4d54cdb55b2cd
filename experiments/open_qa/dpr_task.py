# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""DPR: an embedder trained on questions and blocks that answer them.

Karpukhin et al. 2020. BM25 finds the blocks once, under DATA/dpr. REALM and question
answering start from the embedder by --config.embedder_from=DIR.
"""

import dataclasses

from absl import logging

from experiments.engine import loop, tasks
from experiments.open_qa import config as config_lib, mining
from experiments.realm import recall, task as realm_task
from realm_jax.data import block_dataset, folder as realm_data
from realm_jax.objectives import dpr
from retrieval.questions import question_sets
from retrieval.store import manifests

FOLDER = 'dpr'
Config = config_lib.DprConfig


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  task = make_task(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


def make_splits(
  config: Config, data: realm_data.DataFolder
) -> dict[str, tuple[dpr.Examples, block_dataset.Split]]:
  """Find the examples of 'train' and 'valid', and which of them are the split's.

  Without config.questions.dev, config.valid_fraction of the training examples are
  held out.
  """
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

  train = find('train')
  if config.questions.dev:
    examples = {'train': train, 'valid': find('dev')}
    return {name: (x, x.split('all', 0.0)) for name, x in examples.items()}
  names = ['train'] + ['valid'] * bool(config.eval_batches)
  fraction = config.valid_fraction
  return {name: (train, train.split(name, fraction)) for name in names}


def make_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Return the task of the embedder."""
  layout = dataclasses.replace(
    data.layout(config), query_length=config.question_length
  )
  encode = data.tokenizer.encode_ids_batch
  splits = make_splits(config, data)
  examples, rows = splits['train']
  blocks = 1 + examples.negatives.shape[1]

  def read(split):
    of_split = splits[split][0]
    return lambda numbers, _: dpr.read_rows(layout, of_split, encode, numbers)

  prints = [x.fingerprint for x, _ in splits.values()]
  return realm_task.part_task(
    config,
    data,
    part='embedder',
    loss=realm_task.in_batch_loss(dpr.loss, config.dpr),
    dataset=realm_task.row_dataset(
      config, {name: x for name, (_, x) in splits.items()}, read
    ),
    fingerprint=manifests.fingerprint([*prints, repr(rows), str(layout)]),
    row_tokens=layout.query_length + blocks * layout.block_length,
  )
