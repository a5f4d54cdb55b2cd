# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The programs of a config, traced for devices that are not there."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from experiments.accelerators import realm_programs
from experiments.engine import configs, program as program_lib, rooms, tasks
from experiments.retro import task as retro_task
from retrieval.nn import sharding
from retro_jax.decoding import decode, drawing
from retro_jax.nn import initial, presets, retro as retro_lib
from retro_jax.trained import loading

Config = ml_collections.ConfigDict
Devices = Sequence[jax.Device]
Shapes = Mapping[str, jax.ShapeDtypeStruct]


@dataclasses.dataclass(frozen=True)
class Traced:
  """A program that could be compiled."""

  traced: Any  # of jax.jit(...).trace
  mesh: Mapping[str, int]
  dtype: str  # of its products
  model_flops: float  # of the model's formula, on all devices


def _steps(
  config: Config,
  devices: Devices,
  name: str,
  task: tasks.Task,
  shapes: Shapes,
  dtype: str,
) -> Traced:
  """The train step of a task, or its validation of a batch."""
  program = program_lib.make_program(task, config, devices=devices)
  batch = {
    key: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=program.rows)
    for key, x in shapes.items()
  }
  flops = task.flops_per_step
  if task.frozen is not None:
    flops *= 2 / 3  # frozen parts have no gradients of their own
  with program.context():
    if name == 'train':
      traced = program.step.trace(program.abstract, batch)
    else:
      traced = program.evaluate.trace(program.abstract.params, batch)
      flops = task.flops_per_step / 3
  return Traced(traced, program.mesh.shape, dtype, flops)


def _retro(config: Config, devices: Devices, name: str) -> Traced:
  """RETRO, its baseline or RETROfit."""
  task, shapes = retro_task.without_data(config)
  return _steps(config, devices, name, task, shapes, config.model.dtype)


def _decode(config: Config, devices: Devices, name: str) -> Traced:
  """One token of each of `batch_size` rows, on one device.

  The loop up to the end of a chunk counts once.
  """
  model_cfg = loading.model_config(config, config.tokenizer.vocab_size)
  model = retro_lib.Retro(model_cfg)
  mesh = sharding.make_mesh(devices=devices[:1])
  here = sharding.replicated(mesh)
  b, chunks = config.batch_size, config.sequence_chunks
  length = chunks * model_cfg.chunk_length
  k = config.num_neighbors if config.retrieval else 0
  buffer = {'tokens': jax.ShapeDtypeStruct((b, length), jnp.int32)}
  if k:
    read = (b, chunks, k, model_cfg.neighbor_length)
    buffer['neighbors'] = jax.ShapeDtypeStruct(read, jnp.int32)
    buffer['neighbor_mask'] = jax.ShapeDtypeStruct(read, bool)
  rows = jax.ShapeDtypeStruct((b,), jnp.int32)
  steps = jax.ShapeDtypeStruct((2,), jnp.int32)
  # The devices of this mesh run nothing.
  key = jax.eval_shape(jax.random.key, 0)
  place = functools.partial(
    jax.tree.map,
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here),
  )
  with jax.set_mesh(mesh):
    init = functools.partial(initial.flat_params, config=model_cfg)
    params = place(sharding.unbox(jax.eval_shape(init, key)))
    logits, cache = jax.eval_shape(
      lambda *x: decode.first_logits(model, *x), params, buffer, rows
    )
    traced = decode.draw_tokens.trace(
      model,
      params,
      drawing.SamplingConfig(),
      model_cfg.chunk_length,
      *place((key, rows, logits, cache, rows, rows, steps)),
    )
  flops = b * presets.flops_per_token(model_cfg, length, k)
  return Traced(traced, mesh.shape, model_cfg.dtype, flops)


def _realm(config: Config, devices: Devices, name: str) -> Traced:
  """REALM, the inverse cloze task or a reader."""
  mesh = sharding.make_mesh(**vars(config.mesh), devices=devices).shape
  config, task, shapes = realm_programs.of(config, mesh['data'] * mesh['fsdp'])
  return _steps(config, devices, name, task, shapes, config.embedder.dtype)


def _embed(config: Config, devices: Devices, name: str) -> Traced:
  """A batch of blocks for the index."""
  traced, flops = realm_programs.trace_embedding(config, devices)
  mesh = {'data': len(devices)}
  return Traced(traced, mesh, config.embedder.dtype, flops)


def _search(config: Config, devices: Devices, name: str) -> Traced:
  """Exact search of the blocks for the questions of a batch."""
  if name == 'search_alone':
    devices = devices[:1]
  traced, flops = realm_programs.trace_search(config, devices)
  mesh = {'rows': len(devices)}
  return Traced(traced, mesh, config.vectors.dtype, flops)


# config.task -> name of a program -> what traces it.
TASKS: dict[str, dict[str, Callable[..., Traced]]] = {
  'retro': {'train': _retro, 'evaluate': _retro, 'decode': _decode},
  'realm': {
    'train': _realm,
    'evaluate': _realm,
    'embed': _embed,
    'search': _search,
    'search_alone': _search,
  },
  'ict': {'train': _realm, 'evaluate': _realm},
  'open_qa': {
    'train': _realm,
    'evaluate': _realm,
    'search': _search,
    'search_alone': _search,
  },
}


def trace(config: Config, devices: Devices, name: str) -> Traced:
  """Trace a program of a config.

  Raises:
    ValueError: for an unknown one, or a config that does not fit the devices.
  """
  tracers = TASKS.get(config.task, {})
  if name not in tracers:
    raise ValueError(
      f'--program={name!r}: config.task {config.task!r} has {sorted(tracers)}.'
    )
  if not dataclasses.is_dataclass(config):
    config = configs.build(rooms.config_class(config.task), config)
  return tracers[name](config, devices, name)
