# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The task of a reader: answers from retrieved blocks."""

from collections.abc import Sequence
import dataclasses
import functools
import os

from absl import logging
import jax

from experiments.engine import loop, progress, tasks
from experiments.open_qa import config as config_lib
from experiments.realm import refresh, starts, task as realm_task
from realm_jax.data import block_dataset, folder as realm_data, question_rows
from realm_jax.nn import config as nn_config, initialize, open_qa
from realm_jax.objectives import reader_losses
from realm_jax.trained import index_builder, model_configs, reader_configs
from retrieval.index import index_versions
from retrieval.nn import sharding
from retrieval.questions import question_sets
from retrieval.store import checkpoints, manifests


def train(config: config_lib.Config, workdir: str) -> None:
  """Train until `config.num_steps`; the data are prepared first, if need be."""
  if not config.reading.train:
    question_sets.check_questions(config)
  if not config.data_dir:
    from experiments.realm import prepare

    prepare.prepare(config, workdir)
  data = realm_data.DataFolder.of(config, workdir)
  config = freeze(config)
  if config.reading.train:
    task = make_reading_task(config, data)
  else:
    task = make_task(config, data, workdir)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


# Starts.


def with_realm_from(config: config_lib.Config) -> config_lib.Config:
  """Return the config with `realm_from` in place of starts that are not set."""
  if not config.realm_from:
    return config
  both = {
    name: config.realm_from
    for name in ('embedder_from', 'encoder_from')
    if getattr(config, name) in ('', model_configs.PACKAGED)
  }
  return dataclasses.replace(config, **both)


def init_params(
  key: jax.Array,
  *,
  config: config_lib.Config,
  model: open_qa.OpenQaConfig,
) -> tasks.Params:
  """Return initial parameters, boxed with their logical axes."""
  sources = starts.start_sources(with_realm_from(config))
  return open_qa.init_params(key, model, **sources)


def kept_embedder(
  config: config_lib.Config, model: nn_config.RealmConfig
) -> dict | None:
  """Return the embedder of the index that a run takes from an earlier run.

  An earlier run that trained the questions' side alone has the index of its
  start. A run that starts from it keeps this index, too, unless it trains the
  blocks' side. None: the run builds an index.
  """
  run = with_realm_from(config).embedder_from
  if not run or config.train_blocks or run == model_configs.PACKAGED:
    return None
  saved = checkpoints.find(run)
  theirs = reader_configs.of_saved(saved)
  if not saved.index_version or getattr(theirs, 'train_blocks', True):
    return None
  folder = index_builder.index_folder(run) / saved.index_version
  logging.info('The index stays that of %s.', folder)
  params = index_versions.read_snapshot(folder)
  return initialize.start_embedders(params, model)[0]


def freeze(config: config_lib.Config) -> config_lib.Config:
  """Return the config with a learning rate of 0 for parts without gradient.

  Weight decay would shrink these parts. The scale of 'embedder' becomes that of
  both embedders where there are two; the scale of an embedder that the model
  does not have is dropped.
  """
  shared = config.model.share_embedders
  parts = initialize.embedders(shared)
  scales = dict(config.optimizer.part_scales)
  if 'embedder' in scales:
    scales = {name: scales['embedder'] for name in parts} | scales
  for name in {*initialize.embedders(not shared)} - {*parts}:
    scales.pop(name, None)
  frozen = parts
  if config.retriever == 'dense' and not config.reading.train:
    learns = config.train_blocks or shared
    frozen = () if learns else ('block_embedder',)
  scales |= {name: 0.0 for name in frozen}
  optimizer = dataclasses.replace(config.optimizer, part_scales=scales)
  return dataclasses.replace(config, optimizer=optimizer)


# The task.


def make_task(
  config: config_lib.Config,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
  *,
  devices: Sequence[jax.Device] | None = None,
) -> tasks.Task:
  """Return the task of a reader.

  Args:
    devices: devices that train; None is all.
  """
  from realm_jax.trained import beams  # with all retrievers

  _check(config)
  model = reader_configs.reader_config(config, data.tokenizer.vocab_size)
  index_refresher = None
  if config.retriever in beams.WITH_VECTORS:
    first = functools.partial(kept_embedder, config, model.realm)
    index_refresher = refresh.of_run(config, data, workdir, first)
  retriever = beams.make_retriever(config, data, index_refresher)
  selector = beams.BeamSelector(
    config, data, retriever, train_blocks=config.train_blocks
  )
  source, splits = read_source(config, data)
  shards = sharding.make_mesh(**vars(config.mesh), devices=devices).shape
  # Rows of a global batch, a multiple of devices and microbatches.
  unit = shards['data'] * shards['fsdp'] * config.optimizer.accumulate_steps
  rows = -(-config.batch_size // unit) * unit
  identity = [
    source.fingerprint,
    data.blocks.fingerprint,
    {k: x for k, x in vars(config.lookup).items() if k != 'where' or x},
    config.retriever,
    config.train_blocks,
    list(splits['train']),
    config.refresh.identity,
  ]
  if retriever.reranker:
    identity.append(retriever.reranker)

  def dataset(split):
    return question_rows.make_dataset(
      source,
      span=splits[split],
      train=split == 'train',
      padded_size=rows,
      **tasks.share_of(config),
    )

  return tasks.Task(
    init=functools.partial(init_params, config=config, model=model),
    init_on_host=True,
    loss=functools.partial(reader_losses.loss, open_qa.OpenQa(model)),
    dataset=dataset,
    pipeline_fingerprint=manifests.fingerprint(identity),
    fingerprints=data.fingerprints(),
    index_refresher=index_refresher,
    complete=lambda params, batch: selector.select(params, batch, source),
    batch_rows=rows,
  )


def make_reading_task(
  config: config_lib.Config, data: realm_data.DataFolder
) -> tasks.Task:
  """Return the task of a reader of questions with passages.

  The passages are cut into blocks once, under DATA/reading.
  """
  from realm_jax.data import reading_rows  # no other task reads its files

  files = {'train': config.reading.train, 'valid': config.reading.valid}
  if config.eval_batches and not files['valid']:
    raise ValueError(
      'reading.valid is empty: name a file, or set eval_batches=0.'
    )
  asked = {split: reading_rows.read(paths) for split, paths in files.items()}
  with progress.bar('passages', 'documents') as update:
    blocks = reading_rows.cut(
      [*asked['train'], *asked['valid']],
      data.path('reading'),
      data.tokenizer_path,
      max_length=config.blocks.max_length,
      num_processes=config.tokens.num_processes,
      progress=update,
    )
  layout, read, splits = reader_configs.reader_layout(config, data), {}, {}
  for split, questions in asked.items():
    if not questions:
      continue
    rows = reading_rows.ReadingRows(
      questions,
      blocks,
      data.tokenizer,
      layout,
      most=config.lookup.retriever_beam,
      config=config.reading,
    )
    used = rows.usable.sum()
    logging.info(
      '%s: %d of %d questions are used.', split, used, len(questions)
    )
    read[split] = rows.draw if split == 'train' else rows.first
    splits[split] = block_dataset.Split(
      rows.usable, f'reading.{split} {rows.fingerprint}'
    )
  model = reader_configs.reader_config(config, data.tokenizer.vocab_size)
  return tasks.Task(
    init=functools.partial(init_params, config=config, model=model),
    init_on_host=True,
    # No retriever learns.
    loss=functools.partial(
      reader_losses.loss, open_qa.OpenQa(model), early_weight=0.0
    ),
    dataset=realm_task.row_dataset(config, splits, read.get),
    pipeline_fingerprint=repr(splits['train']),
    tokens_per_step=config.batch_size
    * config.reading.blocks
    * config.lookup.row_length,
    fingerprints=data.fingerprints(),
  )


def _check(config: config_lib.Config) -> None:
  if config.train_blocks and config.retriever != 'dense':
    raise ValueError(
      f'train_blocks=True needs retriever=dense, not {config.retriever!r}.'
    )
  if not config.train_blocks and config.refresh.schedule != 'frozen':
    raise ValueError(
      f'refresh.schedule={config.refresh.schedule!r}: with train_blocks=False '
      "nothing changes the blocks' vectors; expected frozen."
    )


def read_source(
  config: config_lib.Config, data: realm_data.DataFolder
) -> tuple[question_rows.QuestionSource, dict[str, tuple[int, int]]]:
  """Read all questions of a run; training questions come first.

  Also returns split -> first and past-last question.
  """
  sets = config.questions
  train = question_sets.of_field(sets, 'train')
  dev = question_sets.of_field(sets, 'dev') if sets.dev else []
  if not dev and config.eval_batches:
    raise ValueError(
      'questions.dev is empty: name a set, or set eval_batches=0.'
    )
  logging.info('%d questions to train on, %d held out.', len(train), len(dev))
  layout = reader_configs.reader_layout(config, data)
  source = question_rows.QuestionSource(train + dev, data.tokenizer, layout)
  return source, {'train': (0, len(train)), 'valid': (len(train), len(source))}
