# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks of REALM's warm starts: ICT of the embedder, MLM of the encoder."""

from collections.abc import Callable, Sequence
import dataclasses
import functools

from absl import logging
import jax
import ml_collections

from experiments.engine import loop, tasks
from experiments.realm import task as realm_task
from realm_jax.data import block_dataset, folder as realm_data
from realm_jax.nn import realm as model_lib
from realm_jax.objectives import ict, mlm
from realm_jax.serving import model_configs
from retrieval.text import blocks as blocks_lib

Config = ml_collections.ConfigDict
# Split -> reader of rows, and their numbers.
Rows = Callable[[str], tuple[block_dataset.Read, block_dataset.Split]]
MakeTask = Callable[[Config, realm_data.DataFolder], tasks.Task]


def check_whole_batch(config: Config, section: str) -> None:
  """Raise ValueError if microbatches would reduce the negatives of a loss."""
  if config.optimizer.accumulate_steps != 1:
    raise ValueError(
      'optimizer.accumulate_steps must be 1: microbatches would reduce the '
      f'negatives; use {section}.gradient_cache_parts.'
    )


def ict_loss(config: Config) -> Callable:
  """Return the loss of the inverse cloze task, which takes the model first."""
  return functools.partial(
    ict.loss,
    num_chunks=config.ict.gradient_cache_parts,
    mask_duplicates=config.ict.mask_duplicates,
  )


def make_ict_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Bind the embedder, the loss of the inverse cloze task and the data.

  The negatives of a row are all other blocks of the global batch. Large batches
  fit on one device in config.ict.gradient_cache_parts parts.

  Raises:
    ValueError: if config.optimizer.accumulate_steps is not 1.
  """
  check_whole_batch(config, 'ict')
  settings = config.ict
  layout = dataclasses.replace(
    data.layout(config), query_length=settings.query_length
  )

  def read(ids, rng):
    return ict.read_rows(layout, data.blocks, ids, rng, settings.mask_rate)

  return make_part_task(
    config,
    data,
    *_rows(config, data.blocks, read, f'{layout} {settings.mask_rate}'),
    loss=ict_loss(config),
    part='embedder',
    row_lengths=(layout.query_length, layout.block_length),
    parts=settings.gradient_cache_parts,
  )


def make_mlm_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Bind the encoder, the loss of masked language modelling and the data.

  MLM is needed for an encoder whose checkpoint has no BERT head, such as
  all-MiniLM-L6-v2.
  """
  data.check_masked(config)
  layout, blocks, settings = data.layout(config), data.masked_blocks, config.mlm
  weights = mlm.weigh_tokens(blocks, data.tokenizer.vocab_size, settings.rarity)

  def read(ids, rng):
    return mlm.read_rows(
      layout,
      blocks,
      ids,
      rng,
      mask_rate=settings.mask_rate,
      removal_rate=settings.removal_rate,
      token_weights=weights,
    )

  return make_part_task(
    config,
    data,
    *_rows(config, blocks, read, f'{layout} {sorted(settings.items())}'),
    loss=mlm.loss,
    part='encoder',
    row_lengths=(layout.joint_length,),
  )


def _rows(
  config: Config,
  blocks: blocks_lib.BlockStore,
  read: block_dataset.Read,
  settings: str,
) -> tuple[Rows, str]:
  """Return the reader and the blocks of each split, and their fingerprint."""
  fraction = config.valid_fraction
  return (
    lambda split: (read, block_dataset.split_blocks(blocks, split, fraction)),
    block_dataset.fingerprint(blocks, fraction, settings),
  )


def make_part_task(
  config: Config,
  data: realm_data.DataFolder,
  rows: Rows,
  fingerprint: str,
  *,
  loss: Callable,
  part: str,
  row_lengths: Sequence[int],
  parts: int = 1,
) -> tasks.Task:
  """Bind a part of the model, its loss and its data.

  Args:
    rows: split -> reader of rows, and their numbers.
    fingerprint: hash of the stream of batches.
    loss: takes the model first.
    part: one of `initialize.PARTS`.
    row_lengths: tokens of each text that a row of a batch embeds or reads.
    parts: parts into which the loss cuts a batch.

  Raises:
    ValueError: for a batch that a device cannot hold.
  """
  model = model_configs.realm_config(config, data.tokenizer.vocab_size)

  def dataset(split):
    read, source = rows(split)
    return block_dataset.make_dataset(
      read,
      source,
      endless=split == 'train',
      batch_size=config.batch_size,
      seed=config.seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )

  head = None
  if part == 'encoder':
    head = realm_task.fitted_head(config, data, model)
  return tasks.Task(
    init=functools.partial(
      realm_task.init_params,
      config=config,
      model_cfg=model,
      parts=part,
      fitted_head=head,
    ),
    init_on_host=True,
    loss=functools.partial(loss, model_lib.Realm(model)),
    dataset=dataset,
    pipeline_fingerprint=fingerprint,
    tokens_per_step=config.batch_size * sum(row_lengths),
    fingerprints=data.fingerprints(),
  )


def run(make: MakeTask, config: Config, workdir: str) -> None:
  """Train a task until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  task = make(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)
