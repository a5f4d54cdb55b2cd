# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Open-domain question answering as a Task, and trained models to ask."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import os
import pathlib
from typing import Any

import jax
import ml_collections

from experiments.engine import command
from experiments.engine import tasks
from experiments.open_qa import beam_task
from experiments.realm import task as realm_task
from realm_jax.data import examples
from realm_jax.data import folder as realm_data
from realm_jax.data import pipeline
from realm_jax.data import question_rows
from realm_jax.data import reader_rows
from realm_jax.nn import initialize
from realm_jax.nn import open_qa
from realm_jax.nn import realm as model_lib
from realm_jax.objectives import reader_losses
from realm_jax.serving import beams
from realm_jax.serving import index_folders
from realm_jax.serving import lookup as lookup_lib
from realm_jax.serving import serving
from retrieval.index import index_versions
from retrieval.nn import sharding
from retrieval.questions import question_sets
from retrieval.store import checkpoints


def model_config(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> open_qa.OpenQaConfig:
  """The model that a config names."""
  return open_qa.OpenQaConfig(
    realm=realm_task.model_config(config, data), **config.reader
  )


def reader_layout(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> reader_rows.ReaderLayout:
  """Lengths of the reader's rows and the tokenizer's specials."""
  tokenizer = data.tokenizer
  spans = {}
  if 'reader' in config:  # what classifies claims has no spans
    spans['max_span_width'] = config.reader.max_span_width
  return reader_rows.ReaderLayout(
    row_length=config.lookup.row_length,
    question_length=config.lookup.question_length,
    **spans,
    cls_id=tokenizer.cls_id,
    sep_id=tokenizer.sep_id,
    pad_id=tokenizer.pad_id,
  )


def init_params(
  key: jax.Array,
  *,
  config: ml_collections.ConfigDict,
  model_cfg: open_qa.OpenQaConfig,
) -> tasks.Params:
  """Initial parameters, boxed with their logical axes.

  Args:
    key: randomness of what no checkpoint gives.
    config: names the checkpoints, or runs of ICT, DPR, MLM, REALM or question
      answering.
    model_cfg: the model.

  Returns:
    The tree of `open_qa.OpenQa`.
  """
  found, folders = beam_task.start_sources(config)
  trained = found.get('encoder')
  whole = trained is not None and 'reader' in trained
  return open_qa.init_params(
    key,
    model_cfg,
    embedder=folders.get('embedder'),
    encoder=folders.get('encoder') if trained is None else trained,
    retriever=found.get('embedder'),
    reader=trained if whole else None,
  )


def make_lookup(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  retriever: beams.Retriever,
  *,
  retriever_beam: int = 0,
  reader_beam: int = 0,
  train_blocks: bool = False,
  search: bool = True,
) -> lookup_lib.Lookup:
  """What completes batches of questions; beams of 0 are the config's."""
  settings = config.lookup
  return lookup_lib.Lookup(
    reader_layout(config, data),
    data.blocks,
    retriever,
    tokenizer=data.tokenizer,
    rule=settings.rule if search else '',
    retriever_beam=retriever_beam or settings.retriever_beam,
    reader_beam=reader_beam or settings.reader_beam,
    block_layout=data.layout(config) if train_blocks else None,
  )


def make_task(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
  *,
  devices: Sequence[jax.Device] | None = None,
  start_builder=None,
) -> tasks.Task:
  """Binds model, loss, questions and retrieval.

  Args:
    config: of the experiment.
    data: where the stores lie.
    workdir: where the index versions go.
    devices: that train; all by default.
    start_builder: starts the process of refresh.builder 'process'.

  Returns:
    What the loop trains.

  Raises:
    ValueError: for settings that do not fit each other, or no questions.
  """
  question_sets.require_sets(config.questions.train, 'questions.train')
  model_cfg = model_config(config, data)
  return beam_task.bind(
    config,
    data,
    workdir,
    devices=devices,
    start_builder=start_builder,
    init=functools.partial(init_params, config=config, model_cfg=model_cfg),
    loss=functools.partial(
      reader_losses.loss, open_qa.OpenQa(model_cfg), **config.loss
    ),
    read_source=read_source,
    make_lookup=make_lookup,
  )


def freeze(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """The config with a learning rate of 0 for what no loss reaches.

  Else weight decay would wear these parts down. A scale of 'embedder' becomes that
  of both embedders where there are two; one of an embedder that the model does not
  have is dropped.
  """
  shared = config.model.share_embedders
  parts = initialize.embedders(shared)
  scales = dict(config.optimizer.part_scales)
  if 'embedder' in scales:
    scales = {name: scales['embedder'] for name in parts} | scales
  for name in {*initialize.embedders(not shared)} - {*parts}:
    scales.pop(name, None)
  frozen = parts
  if config.retriever == 'dense':
    learns = config.train_blocks or shared
    frozen = () if learns else ('block_embedder',)
  scales |= {name: 0.0 for name in frozen}
  if scales == dict(config.optimizer.part_scales):
    return config
  changed = command.changed(config)
  with changed.unlocked():
    changed.optimizer.part_scales = scales
  return changed


def read_source(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> tuple[question_rows.QuestionSource, dict[str, tuple[int, int]]]:
  """All questions of a run, and which of them are of which split."""
  settings, other = config.questions, config.questions.allow_other_counts
  train = question_sets.load_questions(
    settings.train, settings.max_train, other
  )
  dev = question_sets.load_questions(settings.dev, settings.max_dev, other)
  spans = beam_task.splits(config, 'questions', train, dev)
  source = question_rows.QuestionSource(
    train + dev, data.tokenizer, reader_layout(config, data)
  )
  return source, spans


@dataclasses.dataclass(frozen=True)
class Trained:
  """A model that reads what it retrieves, with its data.

  Attributes:
    config: of the experiment.
    data: where its stores lie.
    layout: lengths of the blocks' rows.
    model: the model.
    params: its parameters, on one device.
    step: of the checkpoint; 0 before training.
    block_step: of the parameters that embed blocks.
    block_params: these parameters, where they are not among `params`.
  """

  config: ml_collections.ConfigDict
  data: realm_data.DataFolder
  layout: examples.Layout
  model: open_qa.BeamScorer
  params: Any
  step: int
  block_step: int = 0
  block_params: Any = None

  def as_realm(self) -> realm_task.Trained:
    """The retriever that embedded the blocks."""
    params = self.params if self.block_params is None else self.block_params
    model = model_lib.Realm(self.model.config.realm)
    return realm_task.Trained(
      *(self.config, self.data, self.layout, model, params, self.block_step)
    )

  def open_index(self, folder: str | os.PathLike) -> serving.ServingIndex:
    """The index of the blocks; built where it does not stand yet."""
    return self.as_realm().open_index(folder)

  def retriever(self, folder: str | os.PathLike) -> beams.Retriever:
    """What finds blocks; the index lies in `folder`."""
    snapshots = None
    if self.config.retriever == 'dense':
      snapshots = pipeline.OneSnapshot(self.open_index(folder))
    return beam_task.make_retriever(self.config, self.data, snapshots)


def load(workdir: str | os.PathLike, data_dir: str = '') -> Trained:
  """Loads the newest checkpoint of a run of question answering.

  Args:
    workdir: of the training run, or of a converted checkpoint.
    data_dir: where the data lie now, if they have moved or changed.

  Returns:
    The trained model.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if it is of another kind of run, or of another tokenizer.
  """
  return load_as(
    workdir,
    data_dir,
    part='reader',
    trained_by='qa_train',
    make_model=lambda *given: open_qa.OpenQa(model_config(*given)),
  )


def load_as(
  workdir: str | os.PathLike,
  data_dir: str,
  *,
  part: str,
  trained_by: str,
  make_model: Callable,
) -> Trained:
  """Loads a checkpoint that has a certain part beside its retriever.

  Args:
    workdir: see `load`.
    data_dir: likewise.
    part: of the parameters: what reads the blocks.
    trained_by: the command that trains one.
    make_model: (config, data) -> the model.

  Returns:
    The trained model.

  Raises:
    FileNotFoundError: see `load`.
    ValueError: likewise.
  """
  params, saved = checkpoints.load_params(str(workdir))
  if part not in params:
    raise ValueError(
      f'{workdir}: a checkpoint with {sorted(params)}, expected a {part}; '
      f'train one: experiments.{trained_by} --config.realm_from={workdir}'
    )
  config = saved.config
  data = realm_data.open_saved(saved, workdir, data_dir)
  block_step, block_params = saved.step, None
  if saved.index_version:
    folder = pathlib.Path(workdir) / index_folders.INDEX / saved.index_version
    block_step = index_versions.step_of(saved.index_version)
    block_params = index_versions.read_snapshot(folder)
  return Trained(
    *(config, data, data.layout(config), make_model(config, data)),
    *(params, saved.step),
    *(block_step, block_params),
  )


def untrained(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> Trained:
  """The model as training begins."""
  model_cfg = model_config(config, data)
  key = jax.random.split(jax.random.key(config.seed))[0]
  params = sharding.unbox(init_params(key, config=config, model_cfg=model_cfg))
  model = open_qa.OpenQa(model_cfg)
  kept = beam_task.kept_embedder(config, model_cfg.realm)
  return Trained(
    *(config, data, data.layout(config), model, params, 0), block_params=kept
  )
