# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO and its baseline as a Task for the loop, and trained models to look into."""

import dataclasses
import functools
import os
from typing import Any

from absl import logging
from flax import linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.engine import tasks
from retrieval import tokenization
from retrieval.nn import sharding
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data
from retro_jax.data import pipeline
from retro_jax.nn import config as config_lib
from retro_jax.nn import lookup
from retro_jax.nn import losses
from retro_jax.nn import presets
from retro_jax.nn import retro as model_lib
from retro_jax.nn import retrofit

# Of a module's own, so that asking again does not compile again.
batch_nll = jax.jit(losses.batch_nll, static_argnames=('model', 'train'))


def model_config(
  config: ml_collections.ConfigDict, vocab_size: int
) -> config_lib.RetroConfig:
  """The model that a config names; the baseline is the one without P.

  Raises:
    ValueError: for a field that RetroConfig does not have.
  """
  fields = config.model.to_dict()
  known = {field.name for field in dataclasses.fields(config_lib.RetroConfig)}
  unknown = sorted(set(fields) - known)
  if unknown:
    raise ValueError(f'config.model: RetroConfig has no fields {unknown}.')
  if not config.retrieval:
    fields['cca_layers'] = ()
  return config_lib.RetroConfig(vocab_size=vocab_size, **fields)


def special_ids(
  tokenizer: tokenization.Tokenizer,
) -> dict[str, tuple[int, ...]]:
  """SamplingConfig's stop_ids and banned_ids: a text ends, no other begins."""
  # What ends a document may begin one, too.
  banned = {tokenizer.pad_id, tokenizer.bos_id} - {tokenizer.eos_id}
  return {'stop_ids': (tokenizer.eos_id,), 'banned_ids': tuple(sorted(banned))}


def chunk_reader(
  config: ml_collections.ConfigDict,
  data: retro_data.DataFolder,
  split: str,
  num_neighbors: int | None = None,
) -> pipeline.ChunkReader:
  """Reads a split's chunks with their neighbors; the baseline's has none.

  Args:
    config: of the experiment.
    data: where the stores lie.
    split: 'train' or 'valid'.
    num_neighbors: default `config.num_neighbors`.

  Returns:
    The reader.

  Raises:
    ValueError: when the data were cut into other chunks than the model's.
  """
  if num_neighbors is None:
    num_neighbors = config.num_neighbors if config.retrieval else 0
  found = data.chunks(split).chunk_length
  if found != config.model.chunk_length:
    raise ValueError(
      f'{data.path(f"chunks-{split}")}: chunks of {found} tokens, but '
      f'config.model.chunk_length is {config.model.chunk_length}.'
    )
  return pipeline.ChunkReader(
    chunks=data.path(f'chunks-{split}'),
    neighbors=data.path(f'neighbors-{split}'),
    datastore=data.path('chunks-train'),
    num_neighbors=num_neighbors,
    neighbor_length=config.model.neighbor_length,
    neighbor_part=config.neighbor_part,
  )


def init_params(
  key: jax.Array,
  model_cfg: config_lib.RetroConfig,
  embedding_scale: float | None = None,
) -> tasks.Params:
  """Initial parameters, boxed with their logical axes.

  Args:
    key: randomness.
    model_cfg: the model.
    embedding_scale: standard deviation of the embeddings that will take the
      place of these; None for the model's own.

  Returns:
    The tree of `model.Retro`.
  """
  c = model_cfg
  tokens = jnp.zeros((1, c.chunk_length), jnp.int32)
  neighbors = jnp.zeros((1, 1, 1, c.neighbor_length), jnp.int32)
  mask = jnp.ones(neighbors.shape, bool)
  params = model_lib.Retro(c).init(key, tokens, neighbors, mask)['params']
  if c.lookup_init:
    if embedding_scale is not None:
      c = dataclasses.replace(c, init_scale=embedding_scale)
    start = lookup.apply(jax.random.fold_in(key, 1), nn.unbox(params), c)
    params = nn.meta.replace_boxed(params, start)
  return params


def _retrofit_params(
  key: jax.Array,
  *,
  config: ml_collections.ConfigDict,
  model_cfg: config_lib.RetroConfig,
  data: retro_data.DataFolder,
) -> tasks.Params:
  """The decoder of `config.retrofit_from` with a new encoder and new CCAs."""
  if isinstance(key, jax.core.Tracer):  # shapes are asked for, not values
    return init_params(key, model_cfg)
  source = config.retrofit_from
  saved = checkpoints.find(source)
  if saved.config.retrieval:
    raise ValueError(
      f'config.retrofit_from {source}: is a RETRO itself (retrieval=True); '
      'expected its baseline, a decoder trained without retrieval.'
    )
  _check_data(source, saved, data)
  fields = {**saved.config.model.to_dict(), 'vocab_size': data.vocab_size}
  try:
    retrofit.check_fits(model_cfg, fields)
  except ValueError as error:
    raise ValueError(f'config.retrofit_from {source}: {error}.') from None
  baseline, _ = checkpoints.load_params(source, step=saved.step)
  baseline = jax.tree.map(np.asarray, baseline)
  scale = float(np.std(baseline['embedding'].astype(np.float32)))

  @jax.jit
  def new_parts(key):
    params = sharding.unbox(init_params(key, model_cfg, scale))
    return {k: x for k, x in params.items() if retrofit.is_added(k)}

  logging.info('RETROfit of %s, step %d: frozen.', source, saved.step)
  return {**baseline, **new_parts(key)}


def _start(config, model_cfg, data) -> dict[str, Any]:
  """Fields of the task: where training starts, and what stays as it is."""
  if not config.get('retrofit_from', ''):
    return {'init': functools.partial(init_params, model_cfg=model_cfg)}
  if not model_cfg.cca_layers:
    raise ValueError(
      f'config.retrofit_from {config.retrofit_from}: nothing would be trained '
      'without chunked cross-attention; expected retrieval=True and cca_layers.'
    )
  return {
    'init': functools.partial(
      _retrofit_params, config=config, model_cfg=model_cfg, data=data
    ),
    'init_on_host': True,
    'frozen': lambda name: not retrofit.is_added(name),
    'flops_per_step': 0.0,  # less than three forward passes
  }


def make_task(
  config: ml_collections.ConfigDict, data: retro_data.DataFolder
) -> tasks.Task:
  """Binds model, loss and data.

  Args:
    config: of the experiment.
    data: where the stores lie.

  Returns:
    What the loop trains.
  """
  model_cfg = model_config(config, data.vocab_size)
  model = model_lib.Retro(model_cfg)
  readers = {s: chunk_reader(config, data, s) for s in ('train', 'valid')}
  sequence_tokens = config.sequence_chunks * config.model.chunk_length
  tokens_per_step = config.batch_size * sequence_tokens
  k = readers['train'].num_neighbors
  forward = presets.flops_per_token(model_cfg, sequence_tokens, k)

  def dataset(split: str):
    return pipeline.make_dataset(
      readers[split],
      sequence_chunks=config.sequence_chunks,
      batch_size=config.batch_size,
      train=split == 'train',
      seed=config.seed,
      num_workers=config.num_workers if split == 'train' else 0,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )

  fields = {
    'loss': functools.partial(losses.loss, model),
    'dataset': dataset,
    'pipeline_fingerprint': pipeline.fingerprint(
      readers['train'], sequence_chunks=config.sequence_chunks
    ),
    'tokens_per_step': tokens_per_step,
    'flops_per_step': 3 * forward * tokens_per_step,
    'index_version': data.neighbors_index if config.retrieval else '',
    'fingerprints': data.fingerprints(config.retrieval),
  }
  return tasks.Task(**(fields | _start(config, model_cfg, data)))


@dataclasses.dataclass(frozen=True)
class Trained:
  """A trained model with its data.

  Attributes:
    config: of the experiment.
    data: where its stores lie.
    model: RETRO or its baseline.
    params: its parameters, on one device or over a mesh.
    step: of the checkpoint.
  """

  config: ml_collections.ConfigDict
  data: retro_data.DataFolder
  model: model_lib.Retro
  params: Any
  step: int


def param_shardings(
  model_cfg: config_lib.RetroConfig, mesh: jax.sharding.Mesh, rules: Any = None
) -> Any:
  """Where each parameter lies on a mesh.

  Args:
    model_cfg: the model.
    mesh: from `sharding.make_mesh`.
    rules: from `sharding.make_rules`.

  Returns:
    A tree of NamedShardings like the parameters.
  """
  init = functools.partial(init_params, model_cfg=model_cfg)
  boxed = jax.eval_shape(init, jax.random.key(0))
  return sharding.tree_shardings(boxed, mesh, rules)


def load(
  workdir: str | os.PathLike,
  data_dir: str = '',
  *,
  mesh: jax.sharding.Mesh | None = None,
  rules: Any = None,
) -> Trained:
  """Loads the newest checkpoint of a run.

  Args:
    workdir: of the training run.
    data_dir: where the data lie now, if they have moved.
    mesh: devices to shard the parameters over; None puts all of them on this
      process's first device.
    rules: logical to mesh axes, from `sharding.make_rules`.

  Returns:
    The model, ready to be applied.

  Raises:
    FileNotFoundError: when there is no checkpoint or no data.
    ValueError: when the data are of another tokenizer than the model.
  """
  saved = checkpoints.find(str(workdir))
  config = saved.config
  if data_dir:
    config.data_dir = data_dir
  data = retro_data.DataFolder.of(config, workdir)
  _check_data(workdir, saved, data)
  model_cfg = model_config(config, data.vocab_size)
  params, _ = checkpoints.load_params(
    str(workdir),
    step=saved.step,
    shardings=(
      None if mesh is None else param_shardings(model_cfg, mesh, rules)
    ),
  )
  return Trained(config, data, model_lib.Retro(model_cfg), params, saved.step)


def _check_data(
  workdir: str | os.PathLike,
  saved: checkpoints.Saved,
  data: retro_data.DataFolder,
) -> None:
  """Refuses another tokenizer than the model's; names what else differs."""
  rows, vocab_size = saved.params['embedding'].shape[0], data.vocab_size
  if rows != vocab_size:
    raise ValueError(
      f'{workdir}: trained with a vocabulary of {rows}, but the tokenizer of '
      f'{data.root} has {vocab_size}.'
    )
  trained_on = saved.fingerprints
  here = data.fingerprints(saved.config.retrieval) if trained_on else {}
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
      '%s was trained on other data than those of %s (%s %s, here %s): as it '
      'should be after retro_update, otherwise perhaps the wrong folder.',
      *(workdir, data.root, name, trained_on[name], here[name]),
    )
