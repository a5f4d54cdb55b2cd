# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering as a Task that fine-tunes all weights of a RETRO or baseline.

The fine-tuned model is the same model, or a Fusion-in-Decoder that starts from it.
"""

import dataclasses
import functools
import os
import pathlib

from absl import logging
import jax
import numpy as np

from experiments.engine import configs, loop, tasks
from experiments.retro import (
  config as retro_config,
  task as retro_task,
)
from experiments.retro_qa import data as retro_qa_data
from experiments.retro_qa.config import Config
from retrieval.questions import question_sets
from retro_jax.data import folder as retro_data, qa_rows
from retro_jax.nn import fid, initial, stack
from retro_jax.trained import language_model, loading

PASSAGES = 'passages'


def train(config: Config, workdir: str) -> None:
  """Fine-tune the run `config.retro_from` until `config.num_steps`."""
  config = adopt(config)
  question_sets.check_questions(config)
  trained = language_model.load(config.retro_from, config.data_dir)
  trained = loading.with_models(trained, config)
  # The retriever reads passages of the length that the model reads.
  length = {'model.neighbor_length': config.model.neighbor_length}
  trained = dataclasses.replace(
    trained, config=configs.replaced(trained.config, **length)
  )
  task = make_task(config, trained, workdir)
  logging.info('Training on %s, writing to %s.', config.retro_from, workdir)
  loop.train(task, config, workdir)


def adopt(config: Config) -> Config:
  """Return a config with model and data of the source run.

  A FiD's model differs from its source's as `fid.fields` says. Dropout acts in the
  decoder alone, which is best in RETRO's paper.

  Args:
    config: `retro_from` names the source run; `data_dir` is the data folder, if
      it has moved.
  """
  if not config.retro_from:
    raise ValueError(
      'config.retro_from is empty: expected the workdir of a RETRO, or of a '
      'baseline, made by experiments.train.'
    )
  _, source = loading.find_run(config.retro_from, retro_config.Config)
  data = retro_data.DataFolder.of(
    config if config.data_dir else source, config.retro_from
  )
  qa, model = config.qa, source.model
  if qa.reader == 'fid' and not qa.num_passages:
    raise ValueError(
      "config.qa.num_passages 0: a FiD reads at least one; reader='closed_book' "
      'reads the question alone.'
    )
  fields = {'dropout_rate': qa.dropout_rate}
  if qa.is_fid:
    length = qa.passage_length or model.neighbor_length
    fields |= fid.fields(model.num_layers, qa.answer_length, length)
  return dataclasses.replace(
    config,
    data_dir=str(data.root.resolve()),
    retrieval=source.retrieval or qa.is_fid,
    index=source.index,
    sequence_chunks=source.sequence_chunks,
    model=dataclasses.replace(model, **fields),
  )


def make_task(
  config: Config, trained: loading.TrainedRetro, workdir: str | os.PathLike
) -> tasks.Task:
  """Bind the model, its parameters, questions and passages."""
  model_cfg = loading.model_config(config, trained.data.tokens.vocab_size)
  writer = retro_qa_data.writer(config, trained.data.tokenizer)
  folder = pathlib.Path(workdir) / PASSAGES
  examples = {
    split: retro_qa_data.examples(
      trained, config, question_sets.of_field(config.questions, split), folder
    )
    for split in ('train', 'dev')
    if getattr(config.questions, split)
  }
  counts = {split: len(rows) for split, rows in examples.items()}
  logging.info('Questions: %s.', counts)

  def dataset(split: str):
    train = split == 'train'
    return qa_rows.make_dataset(
      examples['train' if train else 'dev'],
      writer,
      train=train,
      **tasks.share_of(config),
    )

  k, length = writer.layout.num_neighbors, writer.layout.row_length
  return tasks.Task(
    init=functools.partial(
      _first_params, config=config, model_cfg=model_cfg, trained=trained
    ),
    init_on_host=True,
    shapes=functools.partial(initial.init_params, config=model_cfg),
    dataset=dataset,
    pipeline_fingerprint=qa_rows.fingerprint(examples['train'], writer),
    fingerprints=trained.data.fingerprints(retrieval=False),
    **retro_task.model_fields(config, model_cfg, k, length),
  )


def _first_params(key, *, config, model_cfg, trained) -> tasks.Params:
  """Return the source's parameters; a FiD drops some and adds new ones."""
  params = jax.tree.map(np.asarray, trained.params)
  params, new, left = initial.extend(key, model_cfg, params)
  logging.info(
    'Loaded from %s, step %d; new: %s; left out: %s.',
    config.retro_from,
    trained.step,
    ', '.join(new) or 'nothing',
    ', '.join(left) or 'nothing',
  )
  return stack.for_training(model_cfg, params)
