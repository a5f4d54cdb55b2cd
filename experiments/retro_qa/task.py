# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering as a Task that fine-tunes all weights of a RETRO or baseline.

The fine-tuned model is the same model, or a Fusion-in-Decoder that starts from it.
"""

import functools
import os
import pathlib
from typing import Any

from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command, tasks
from experiments.retro import settings as settings_lib
from experiments.retro_qa import data as retro_qa_data
from retrieval.questions import question_sets
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data, qa_pipeline
from retro_jax.nn import (
  fid,
  initial,
  losses,
  presets,
  retro as model_lib,
  stack,
)
from retro_jax.trained import language_model, loading

Config = ml_collections.ConfigDict
PASSAGES = 'passages'
# Fields that the fine-tuned run takes from its source.
_KEPT = ('model', 'retrieval', 'index', 'sequence_chunks')


def start(
  config: Config, workdir: str | os.PathLike
) -> tuple[Config, tasks.Task]:
  """The config and the task of a fine-tuning run; see `adopt` and `make_task`."""
  config = adopt(config)
  question_sets.check_questions(config)
  trained = language_model.load(config.retro_from, config.data_dir)
  settings_lib.take_models(trained.config, config)
  trained.config.model.neighbor_length = config.model.neighbor_length
  return config, make_task(config, trained, workdir)


def adopt(config: Config) -> Config:
  """Return a copy of a config with model and data of the source run.

  A FiD's model differs from its source's as `fid.fields` says. Dropout acts in the
  decoder alone, as RETRO's paper found best.

  Args:
    config: `retro_from` names the source run; `data_dir` is the data folder, if
      it has moved.

  Raises:
    ValueError: when no run is named, or for settings that do not fit it.
    FileNotFoundError: when there is no checkpoint.
  """
  if not config.retro_from:
    raise ValueError(
      'retro_from is empty: expected the workdir of a RETRO, or of a baseline, made '
      'by experiments.retro.train.'
    )
  saved = checkpoints.find(config.retro_from)
  loading.check_model(config.retro_from, saved)
  source = saved.config
  data = retro_data.DataFolder.of(
    config if config.data_dir else source, config.retro_from
  )
  fields = {name: source[name] for name in _KEPT}
  adopted = command.changed(config, data_dir=str(data.root.resolve()), **fields)
  with adopted.unlocked():
    adopted.model.dropout_rate = config.qa.dropout_rate
    adopted.model.encoder_dropout_rate = 0.0
    if retro_qa_data.is_fid(config):
      adopted.retrieval = True
      adopted.model.update(_fid_fields(config.qa, adopted.model))
  return adopted


def _fid_fields(qa: Config, model: Config) -> dict[str, Any]:
  if qa.reader == 'fid' and not qa.num_passages:
    raise ValueError(
      "config.qa.num_passages 0: a FiD reads at least one; reader='closed_book' "
      'reads the question alone.'
    )
  try:
    return fid.fields(
      model.num_layers,
      qa.cross_layers,
      qa.answer_length,
      qa.passage_length or model.neighbor_length,
    )
  except ValueError as error:
    raise ValueError(f'config.qa.{error}') from None


def make_task(
  config: Config, trained: loading.TrainedRetro, workdir: str | os.PathLike
) -> tasks.Task:
  """Bind the model, its parameters, questions and passages.

  Raises:
    ValueError: for question sets or passages that do not fit.
    FileNotFoundError: for missing files.
  """
  model_cfg = loading.model_config(config, trained.data.tokens.vocab_size)
  model = model_lib.Retro(model_cfg)
  writer = retro_qa_data.writer(config, trained.data.tokenizer)
  folder = pathlib.Path(workdir) / PASSAGES
  examples = {
    split: _examples(config, trained, split, folder)
    for split in ('train', 'dev')
    if config.questions[split]
  }

  def dataset(split: str):
    train = split == 'train'
    return qa_pipeline.make_dataset(
      examples['train' if train else 'dev'],
      writer,
      batch_size=config.batch_size,
      train=train,
      seed=config.seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )

  length = writer.layout.row_length
  tokens_per_step = config.batch_size * length
  forward = presets.flops_per_token(
    model_cfg, length, writer.layout.num_neighbors
  )
  return tasks.Task(
    init=functools.partial(
      _first_params, config=config, model_cfg=model_cfg, trained=trained
    ),
    init_on_host=True,
    shapes=functools.partial(initial.init_params, config=model_cfg),
    loss=functools.partial(losses.loss, model),
    dataset=dataset,
    pipeline_fingerprint=qa_pipeline.fingerprint(examples['train'], writer),
    tokens_per_step=tokens_per_step,
    flops_per_step=3 * forward * tokens_per_step,
    fingerprints=trained.data.fingerprints(retrieval=False),
  )


def _first_params(key, *, config, model_cfg, trained) -> tasks.Params:
  """Return the source's parameters; a FiD drops some and adds new ones."""
  params = jax.tree.map(np.asarray, trained.params)
  if retro_qa_data.is_fid(config):
    params, new, left = fid.start(key, model_cfg, params)
    logging.info(
      'FiD of %s, step %d; new: %s; left out: %s; all else is loaded.',
      config.retro_from,
      trained.step,
      ', '.join(new) or 'nothing',
      ', '.join(left) or 'nothing',
    )
  return stack.for_training(model_cfg, params)


def _examples(config, trained, split, folder) -> list[qa_pipeline.Example]:
  settings = config.questions
  most = settings.max_train if split == 'train' else settings.max_dev
  questions = question_sets.load_questions(
    settings[split], most, settings.allow_other_counts
  )
  kept = retro_qa_data.examples(trained, config, questions, folder)
  logging.info('%s: %d questions.', split, len(kept))
  return kept
