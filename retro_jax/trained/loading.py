# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained models, RETRO and its baseline, with the data that they read."""

import dataclasses
import functools
import os
from typing import Annotated, Any, Literal

from absl import logging
from flax import linen as nn
import jax

from retrieval import settings, tokenization
from retrieval.store import checkpoints, hub
from retrieval.text import corpus as corpus_lib, tokens as tokens_lib
from retro_jax.data import folder as retro_data, pipeline
from retro_jax.nn import (
  config as config_lib,
  initial,
  losses,
  models,
  retro as model_lib,
  stack,
)

_SHOWN = 5  # names of parameters in a message
# One compiled function for all callers.
batch_nll = jax.jit(losses.batch_nll, static_argnames=('model', 'train'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
  """The fields of a run's config that its data and its model need."""

  # Data. '' stands for <workdir>/data; give the folder to share it.
  data_dir: str = ''
  corpus: corpus_lib.CorpusConfig = corpus_lib.CorpusConfig()
  tokens: retro_data.Tokens = retro_data.Tokens()
  # Shares of documents held out; training looks at `valid`.
  valid_fraction: settings.Rate = 0.01
  test_fraction: settings.Rate = 0.01
  embedder: retro_data.Embedder = retro_data.Embedder()
  neighbors: retro_data.Neighbors = retro_data.Neighbors()
  # Model.
  model: config_lib.RetroConfig = config_lib.RetroConfig()
  retrieval: bool = True  # False: the baseline
  # l; a sequence has l * m tokens
  sequence_chunks: Annotated[int, settings.Range(1, 2**20)] = 8
  # k in training
  num_neighbors: Annotated[int, settings.Range(0, 2**16)] = 2
  # [N, F]; or neighbor, continuation
  neighbor_part: Literal['full', 'neighbor', 'continuation'] = 'full'

  @property
  def held_out(self) -> list[str]:
    """The splits 'valid' and 'test', where a share of the documents is held out."""
    names = tokens_lib.HELD_OUT
    return [x for x in names if getattr(self, f'{x}_fraction')]


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedRetro:
  """A trained model with its data."""

  config: RunConfig  # of the run
  data: retro_data.DataFolder  # folder of its stores
  model: model_lib.Retro  # RETRO or its baseline
  params: Any  # its flat parameters, on one device or over a mesh
  step: int  # of the checkpoint


def find_run(
  workdir: str | os.PathLike,
  config_type: type = RunConfig,
  step: checkpoints.Step = None,
) -> tuple[checkpoints.Saved, Any]:
  """Return checkpoint facts and run config; unknown fields are ignored.

  Raises:
    FileNotFoundError: when there is no checkpoint.
    ValueError: for a checkpoint of another kind of model.
  """
  saved = checkpoints.find(str(workdir), step=step)
  if 'embedding' not in saved.params or 'retrieval' not in saved.config:
    raise ValueError(
      f'{workdir}: a checkpoint with {sorted(saved.params)[:_SHOWN]}, expected '
      'RETRO or its baseline, as experiments.train writes it.'
    )
  content, name = saved.config.to_dict(), f'{workdir}: config'
  return saved, settings.build(config_type, content, name, ignore_others=True)


def load(
  workdir: str | os.PathLike,
  data_dir: str = '',
  *,
  source: str = '',
  reranker: str = '',
  where: str = '',
  step: checkpoints.Step = None,
  mesh: jax.sharding.Mesh | None = None,
  rules: Any = None,
  config_type: type = RunConfig,
) -> TrainedRetro:
  """Load a trained model; arguments and errors as of `language_model.load`."""
  workdir = hub.local(workdir)
  saved, config = find_run(workdir, config_type, step)
  neighbors = config.neighbors
  if source or reranker:
    source = source or neighbors.source
    neighbors = dataclasses.replace(neighbors, source=source, reranker=reranker)
  neighbors = dataclasses.replace(neighbors, where=where or neighbors.where)
  config = dataclasses.replace(
    config, data_dir=data_dir or config.data_dir, neighbors=neighbors
  )
  data = retro_data.DataFolder.of(config, workdir)
  same_neighbors = not (source or reranker or where)
  _check_data(workdir, saved, data, same_neighbors)
  model_cfg = model_config_of(config, data)
  shardings = mesh and initial.param_shardings(
    model_cfg, mesh, rules, stack.is_stacked(saved.params)
  )
  # A run that is being trained may have removed the step named above.
  params, saved = checkpoints.load_params(
    str(workdir), step=step, shardings=shardings
  )
  params = stack.unstack_params(model_cfg, params)
  _check_fields(workdir, saved, params, model_cfg)
  if mesh is None:  # Each call would copy arrays of the host.
    params = jax.device_put(params)
  return TrainedRetro(config, data, models.of(model_cfg), params, saved.step)


def _check_fields(workdir, saved, params, model: config_lib.RetroConfig):
  """Refuse fields of another version that made other parameters."""
  unknown = {*saved.config.model} - {*settings.hints(config_lib.RetroConfig)}
  if not unknown:
    return
  make = functools.partial(initial.flat_params, config=model)
  made = nn.unbox(jax.eval_shape(make, jax.random.key(0)))
  if jax.tree.structure(made) != jax.tree.structure(params):
    values = ', '.join(f'{x}={saved.config.model[x]}' for x in sorted(unknown))
    raise ValueError(
      f'{workdir}: config.model has unknown fields, written by another version '
      f'({values}), and other parameters than the known fields make.'
    )


def model_config(config: RunConfig, vocab_size: int) -> config_lib.RetroConfig:
  """RetroConfig of an experiment; the baseline has no cca_layers."""
  cca_layers = config.model.cca_layers if config.retrieval else ()
  return dataclasses.replace(
    config.model, vocab_size=vocab_size, cca_layers=cca_layers
  )


def model_config_of(
  config: RunConfig, data: retro_data.DataFolder
) -> config_lib.RetroConfig:
  """Return the RetroConfig of an experiment with a data folder's tokenizer."""
  model = model_config(config, data.vocab_size)
  if not model.joint:
    return model
  return dataclasses.replace(model, begin_id=data.tokenizer.bos_id)


def with_models(trained: TrainedRetro, config: RunConfig) -> TrainedRetro:
  """Return a run with the retrieval models of a config, as `merged`."""
  return dataclasses.replace(trained, config=merged(trained.config, config))


def merged(run: Any, config: RunConfig) -> Any:
  """Return a run's config with the embedder, ColBERT and filter of another.

  ColBERT and filter stay where the other one names none.
  """
  neighbors = dataclasses.replace(
    run.neighbors,
    colbert=config.neighbors.colbert or run.neighbors.colbert,
    where=config.neighbors.where or run.neighbors.where,
  )
  return dataclasses.replace(run, embedder=config.embedder, neighbors=neighbors)


def special_ids(
  tokenizer: tokenization.Tokenizer,
) -> dict[str, tuple[int, ...]]:
  """SamplingConfig's stop_ids and banned_ids: a sample is one document."""
  # The token that ends a document may also begin one.
  banned = {tokenizer.pad_id, tokenizer.bos_id} - {tokenizer.eos_id}
  return {'stop_ids': (tokenizer.eos_id,), 'banned_ids': tuple(sorted(banned))}


def chunk_reader(
  config: RunConfig,
  data: retro_data.DataFolder,
  split: str,
  num_neighbors: int | None = None,
) -> pipeline.ChunkReader:
  """Open a split's chunks with their neighbors; a baseline reads none.

  Args:
    split: 'train', 'valid', 'test' or the name of an evaluation set.
    num_neighbors: default `config.num_neighbors`.

  Raises:
    ValueError: when the data were cut into other chunks than the model's.
  """
  if num_neighbors is None:
    num_neighbors = config.num_neighbors if config.retrieval else 0
  chunk_length = data.chunks(split).chunk_length
  if chunk_length != config.model.chunk_length:
    raise ValueError(
      f'{data.path(f"chunks-{split}")}: chunks of {chunk_length} tokens, but '
      f'config.model.chunk_length is {config.model.chunk_length}.'
    )
  return pipeline.ChunkReader(
    chunks=data.path(f'chunks-{split}'),
    neighbors=data.neighbors_path(split),
    datastore=data.path('chunks-train'),
    num_neighbors=num_neighbors,
    neighbor_length=config.model.neighbor_length,
    neighbor_part=config.neighbor_part,
  )


def _check_data(workdir, saved, data, same_neighbors: bool) -> None:
  """Raise ValueError for data of another tokenizer than that of training.

  Other data of the same tokenizer, and other neighbors if `same_neighbors`, are
  reported as a warning.
  """
  rows, vocab_size = saved.params['embedding'].shape[0], data.vocab_size
  if rows != vocab_size:
    raise ValueError(
      f'{workdir}: trained with a vocabulary of {rows}, but the tokenizer of '
      f'{data.root} has {vocab_size}.'
    )
  trained_on = saved.fingerprints
  compared = saved.config.retrieval and same_neighbors
  here = data.fingerprints(compared) if trained_on else {}
  for name in sorted({*trained_on} & {*here}):
    if trained_on[name] == here[name]:
      continue
    if name == 'tokenizer':
      raise ValueError(
        f'{workdir}: trained with tokenizer {trained_on[name]}, but the data '
        f'in {data.root} are of tokenizer {here[name]}; expected data_dir to '
        'name data of the same tokenizer.'
      )
    logging.warning(
      '%s was trained on other data than those of %s (%s %s, here %s). This is '
      'expected after experiments.update; otherwise the data folder may '
      'be wrong.',
      workdir,
      data.root,
      name,
      trained_on[name],
      here[name],
    )
