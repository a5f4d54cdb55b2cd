# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks of models that read retrieved blocks: answers and classes of claims."""

from collections.abc import Callable, Sequence
import functools
import os

from absl import logging
import jax
import ml_collections

from experiments.engine import tasks
from experiments.open_qa import starts
from experiments.realm import refresh, task as realm_task
from realm_jax.data import folder as realm_data, question_rows
from realm_jax.nn import open_qa
from realm_jax.objectives import claims, reader_losses
from realm_jax.serving import (
  beams,
  index_builder,
  model_configs,
)
from retrieval.nn import sharding
from retrieval.questions import claims as claims_lib, question_sets
from retrieval.store import store

Config = ml_collections.ConfigDict
# Split -> first and past-last question or claim.
Splits = dict[str, tuple[int, int]]


def make_task(
  config: Config,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
  *,
  devices: Sequence[jax.Device] | None = None,
  start_builder: Callable | None = None,
) -> tasks.Task:
  """Return the task of config.task: 'open_qa' or 'claims'.

  Args:
    devices: devices that train; None is all that do not build the index.
    start_builder: starts the process of refresh.builder 'process'.

  Raises:
    ValueError: for settings that do not fit each other, or no questions.
  """
  _check(config)
  model_cfg = model_configs.reader_config(config, data.tokenizer.vocab_size)
  if config.task != 'claims':
    question_sets.require_sets(config.questions.train, 'questions.train')
  index_refresher = None
  if config.retriever in beams.WITH_VECTORS:
    builder = index_builder.make_builder(config, data, workdir)
    index_refresher = refresh.Refresher(
      realm_task.refresh_config(config),
      builder,
      start_builder,
      first=functools.partial(starts.kept_embedder, config, builder.model),
    )
  retriever = beams.make_retriever(config, data, index_refresher)
  selector = beams.make_selector(
    config, data, retriever, train_blocks=config.train_blocks
  )
  source, splits = read_source(config, data)
  if devices is None:
    devices = realm_task.training_devices(config)
  shards = sharding.make_mesh(**config.mesh, devices=devices).shape
  rows = padded_rows(config, shards['data'] * shards['fsdp'])
  identity = [
    source.fingerprint,
    data.blocks.fingerprint,
    config.lookup.to_dict(),
    config.retriever,
    config.train_blocks,
    list(splits['train']),
    realm_task.refresh_config(config).identity,
  ]
  if retriever.reranker:
    identity.append(retriever.reranker)
  return tasks.Task(
    init=functools.partial(
      starts.init_params, config=config, model_cfg=model_cfg
    ),
    init_on_host=True,
    loss=bind_loss(config, model_cfg),
    dataset=functools.partial(_dataset, config, source, splits, rows),
    pipeline_fingerprint=store.fingerprint(identity),
    fingerprints=data.fingerprints(),
    index_refresher=index_refresher,
    complete=lambda params, batch: selector.select(params, batch, source),
    batch_rows=rows,
  )


def bind_loss(
  config: Config, model_cfg: open_qa.OpenQaConfig | claims.ClaimsConfig
) -> Callable:
  """Return the loss of a task."""
  if config.task == 'claims':
    model = claims.Claims(model_cfg)
    return functools.partial(claims.loss, model, **config.loss)
  model = open_qa.OpenQa(model_cfg)
  return functools.partial(reader_losses.loss, model, **config.loss)


def _check(config: Config) -> None:
  """Refuse settings that do not fit each other."""
  if config.train_blocks and config.retriever != 'dense':
    raise ValueError(
      f'train_blocks=True needs retriever=dense, not {config.retriever!r}.'
    )
  if not config.train_blocks and config.refresh.schedule != 'frozen':
    raise ValueError(
      f'refresh.schedule={config.refresh.schedule!r}: with train_blocks=False '
      "nothing changes the blocks' vectors; expected frozen."
    )


def check_sets(config: Config) -> None:
  """Read the questions or claim labels, before any data are prepared.

  Raises:
    ValueError: for no questions, or broken ones.
  """
  if config.task == 'claims':
    model_configs.claim_labels(config)
  else:
    question_sets.check_questions(config)


def read_source(
  config: Config, data: realm_data.DataFolder
) -> tuple[question_rows.QuestionSource, Splits]:
  """Read all questions or claims of a run; those to train on come first."""
  if config.task == 'claims':
    name, make_source = 'claims', question_rows.ClaimSource
    classes = model_configs.claim_labels(config)
    train, dev = (_read_claims(config, x, classes) for x in ('train', 'dev'))
  else:
    name, make_source = 'questions', question_rows.QuestionSource
    sets, other = config.questions, config.questions.allow_other_counts
    train, dev = (
      question_sets.load_questions(sets[x], sets[f'max_{x}'], other)
      for x in ('train', 'dev')
    )
  if not dev and config.eval_batches:
    raise ValueError(f'{name}.dev is empty: name a set, or set eval_batches=0.')
  logging.info('%d %s to train on, %d held out.', len(train), name, len(dev))
  layout = model_configs.reader_layout(config, data)
  source = make_source(train + dev, data.tokenizer, layout)
  return source, {'train': (0, len(train)), 'valid': (len(train), len(source))}


def _read_claims(config, split: str, classes) -> list[claims_lib.Claim]:
  found = []
  for spec in config.claims[split]:
    claim_set = load_claims(spec, classes)
    if not claim_set.labelled:
      raise ValueError(f'claims.{split}: {spec!r} has no labels.')
    found += claim_set.claims
  return found[: config.claims[f'max_{split}'] or None]


def load_claims(
  spec: str, classes: Sequence[str], most: int = 0
) -> claims_lib.ClaimSet:
  """Load a claim set with given labels.

  Args:
    most: number of claims to keep, the first ones; 0 for all.

  Raises:
    ValueError: if the set has other labels.
  """
  form = claims_lib.DATASETS.get(claims_lib.dataset_of(spec))
  own = getattr(form, 'labels', ())
  found = claims_lib.load(spec, () if own else classes)
  if found.labels != tuple(classes):
    raise ValueError(
      f'{spec!r}: labels {found.labels}, but the classes are {tuple(classes)}.'
    )
  return found.first(most) if most else found


def _dataset(config, source, splits, rows: int, split: str):
  return question_rows.make_dataset(
    source,
    span=splits[split],
    batch_size=config.batch_size,
    train=split == 'train',
    seed=config.seed,
    process_index=jax.process_index(),
    process_count=jax.process_count(),
    padded_size=rows,
  )


def padded_rows(config: Config, devices: int) -> int:
  """Return the rows of a global batch, a multiple of devices and microbatches."""
  unit = devices * config.optimizer.accumulate_steps
  return -(-config.batch_size // unit) * unit
