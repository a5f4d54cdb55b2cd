# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering with RETRO as a Task that fine-tunes all weights of a run."""

import functools
import os
import pathlib

from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command, tasks
from experiments.retro import qa_data as retro_qa_data
from retrieval.questions import question_sets
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data, qa_pipeline, qa_rows
from retro_jax.nn import initial, losses, presets, retro as model_lib, stack
from retro_jax.trained import loading

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
  trained = loading.load(config.retro_from, config.data_dir)
  trained.config.embedder = config.embedder
  return config, make_task(config, trained, workdir)


def adopt(config: Config) -> Config:
  """Return a copy of a config with model and data of the source run.

  Dropout acts in the decoder alone, as the paper found best.

  Args:
    config: `retro_from` names the source run; `data_dir` is the data folder, if
      it has moved.

  Raises:
    ValueError: when no run is named.
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
  return adopted


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
  writer = qa_rows.QaWriter(
    retro_qa_data.layout(config), trained.data.tokenizer
  )
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
    init=lambda key: stack.for_training(
      model_cfg, jax.tree.map(np.asarray, trained.params)
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


def _examples(config, trained, split, folder) -> list[qa_pipeline.Example]:
  settings = config.questions
  most = settings.max_train if split == 'train' else settings.max_dev
  questions = question_sets.load_questions(
    settings[split], most, settings.allow_other_counts
  )
  kept = retro_qa_data.examples(trained, config, questions, folder)
  logging.info('%s: %d questions.', split, len(kept))
  return kept
