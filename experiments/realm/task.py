# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM and its warm starts ICT and MLM as tasks of the training loop."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import os
from typing import Any

from absl import logging
import grain

from experiments.engine import loop, tasks
from experiments.realm import config as config_lib, refresh, starts
from realm_jax.data import (
  block_dataset,
  folder as realm_data,
  pipeline,
  sources,
)
from realm_jax.nn import config as nn_config, realm
from realm_jax.objectives import ict, losses, mlm
from realm_jax.trained import model_configs
from retrieval.store import manifests

Config = config_lib.Config


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  if config.task == 'realm':
    task = make_task(config, data, workdir)
  else:
    task = _WARM_STARTS[config.task](config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


def masked_sentences(
  config: Config, data: realm_data.DataFolder, split: str
) -> sources.MaskedSentences:
  """Return a split's sentences to mask; log the number left out."""
  data.check_masked(config)
  sentences = sources.MaskedSentences(
    data.masked_blocks,
    data.layout(config),
    sources.SourceConfig(
      masker=config.masker, split=split, valid_fraction=config.valid_fraction
    ),
    data.spans if config.masker == 'salient' else None,
  )
  logging.info(
    'Split %r: %d blocks with something to mask; left out: %s.',
    split,
    len(sentences),
    sentences.skipped,
  )
  return sentences


def realm_loss(config: Config, model: nn_config.RealmConfig) -> Callable:
  """Return the loss of REALM."""
  return functools.partial(
    losses.loss, realm.Realm(model), objective=config.loss.objective
  )


def make_task(
  config: Config,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
) -> tasks.Task:
  """Bind REALM's model, loss, data and index."""
  layout = data.layout(config)
  model = model_configs.realm_config(config, data.tokenizer.vocab_size)
  index_refresher = refresh.of_run(config, data, workdir)
  retrieval = pipeline.Retrieval(data.blocks, layout, index_refresher)
  splits = ['train'] + ['valid'] * bool(config.eval_batches)
  masked = {split: masked_sentences(config, data, split) for split in splits}
  k, joint = layout.num_candidates, layout.joint_length
  row_tokens = layout.query_length + k * (layout.block_length + joint)

  def dataset(split: str) -> grain.IterDataset:
    return pipeline.make_dataset(
      masked[split],
      retrieval,
      train=split == 'train',
      **tasks.share_of(config),
    )

  return tasks.Task(
    init=starts.init(config, data, model),
    init_on_host=True,
    loss=realm_loss(config, model),
    dataset=dataset,
    pipeline_fingerprint=manifests.fingerprint(
      [
        masked['train'].fingerprint,
        data.blocks.fingerprint,
        config.refresh.identity,
      ]
    ),
    tokens_per_step=config.batch_size * row_tokens,
    fingerprints=data.fingerprints(),
    index_refresher=index_refresher,
  )


# ICT and MLM: a part of the model, trained on rows of blocks.


def check_whole_batch(config: Any, section: str) -> None:
  """Raise ValueError if microbatches or a single row leave a loss few negatives."""
  if config.optimizer.accumulate_steps != 1:
    raise ValueError(
      'optimizer.accumulate_steps must be 1: microbatches would reduce the '
      f'negatives; use {section}.gradient_cache_parts.'
    )
  num_negatives = getattr(getattr(config, section), 'num_hard_negatives', 0)
  if config.batch_size < 2 and not num_negatives:
    raise ValueError(
      f'batch_size {config.batch_size}: expected at least 2, as the rows of a '
      "batch are each other's negatives."
    )


def in_batch_loss(loss: Callable, settings: Any) -> Callable:
  """Bind the settings of `in_batch.BatchConfig` to a loss."""
  return functools.partial(
    loss,
    num_chunks=settings.gradient_cache_parts,
    mask_duplicates=settings.mask_duplicates,
  )


def row_dataset(
  config: Any,
  splits: Mapping[str, block_dataset.Split],
  read: Callable[[str], block_dataset.Read],
) -> Callable[[str], grain.IterDataset]:
  """Return split -> dataset of the rows that `read(split)` makes of numbers."""
  return lambda split: block_dataset.make_dataset(
    read(split),
    splits[split],
    endless=split == 'train',
    **tasks.share_of(config),
  )


def make_ict_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Bind the embedder, the loss of the inverse cloze task and the data."""
  check_whole_batch(config, 'ict')
  layout = dataclasses.replace(
    data.layout(config), query_length=config.ict.query_length
  )
  return _task_of_blocks(
    config,
    data,
    'embedder',
    in_batch_loss(ict.loss, config.ict),
    data.blocks,
    functools.partial(ict.read_rows, layout, data.blocks),
    f'{layout} {ict.MASK_RATE}',
    layout.query_length + layout.block_length,
  )


def make_mlm_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Bind the encoder, the loss of masked language modelling and the data."""
  data.check_masked(config)
  layout, blocks = data.layout(config), data.masked_blocks
  weights = mlm.weigh_tokens(blocks, data.tokenizer.vocab_size)
  return _task_of_blocks(
    config,
    data,
    'encoder',
    mlm.loss,
    blocks,
    functools.partial(mlm.read_rows, layout, blocks, token_weights=weights),
    f'{layout} {mlm.RARITY}',
    layout.joint_length,
  )


def _task_of_blocks(
  config, data, part, loss, blocks, read, identity, row_tokens
) -> tasks.Task:
  """Bind a part of the model, one of `initialize.PARTS`, and rows of blocks."""
  fraction = config.valid_fraction
  splits = {
    name: block_dataset.split_blocks(blocks, name, fraction)
    for name in ['train'] + ['valid'] * bool(config.eval_batches)
  }
  identity = [blocks.fingerprint, str(fraction), identity]
  return part_task(
    config,
    data,
    part=part,
    loss=loss,
    dataset=row_dataset(config, splits, lambda split: read),
    fingerprint=manifests.fingerprint(identity),
    row_tokens=row_tokens,
  )


def part_task(
  config: Any,
  data: realm_data.DataFolder,
  *,
  part: str,
  loss: Callable,
  dataset: Callable[[str], grain.IterDataset],
  fingerprint: str,
  row_tokens: int,
) -> tasks.Task:
  """Bind a part of the model, a loss (model first) and data.

  Args:
    part: one of `initialize.PARTS`.
    fingerprint: hash of the stream of batches.
    row_tokens: tokens that a row of a batch embeds or reads.
  """
  model = model_configs.realm_config(config, data.tokenizer.vocab_size)
  return tasks.Task(
    init=starts.init(config, data, model, part),
    init_on_host=True,
    loss=functools.partial(loss, realm.Realm(model)),
    dataset=dataset,
    pipeline_fingerprint=fingerprint,
    tokens_per_step=config.batch_size * row_tokens,
    fingerprints=data.fingerprints(),
  )


_WARM_STARTS = {'ict': make_ict_task, 'mlm': make_mlm_task}
