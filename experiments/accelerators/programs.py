# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The programs of a config, traced for devices that are not there."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from experiments.accelerators import costs, realm_programs
from experiments.engine import configs, program as program_lib, rooms
from experiments.retro import task as retro_task
from retrieval.nn import sharding
from retro_jax.decoding import decode, drawing
from retro_jax.nn import initial, presets, retro as retro_lib
from retro_jax.trained import loading

Config = Any  # the dataclass of config.task
Devices = Sequence[jax.Device]


def _step(config: Config, devices: Devices, name: str) -> costs.Traced:
  """The train step of a model, or its validation of a batch."""
  if config.task == 'retro':
    task, shapes = retro_task.without_data(config)
    dtype = config.model.dtype
  else:
    mesh = sharding.make_mesh(**vars(config.mesh), devices=devices).shape
    num_shards = mesh['data'] * mesh['fsdp']
    config, task, shapes = realm_programs.of(config, num_shards)
    dtype = config.embedder.dtype
  program = program_lib.make_program(task, config, devices=devices)
  batch = {
    key: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=program.rows)
    for key, x in shapes.items()
  }
  flops = task.flops_per_step
  with program.context():
    if name == 'evaluate':
      traced = program.evaluate.trace(program.abstract.params, batch)
      flops /= 3
    else:
      traced = program.step.trace(program.abstract, batch)
      if task.frozen is not None:
        flops *= 2 / 3  # frozen parts have no gradients of their own
  return costs.Traced(traced, program.mesh.shape, dtype, flops)


def _decode(config: Config, devices: Devices, name: str) -> costs.Traced:
  """One token of each of `batch_size` rows, on one device.

  The loop up to the end of a chunk counts once.
  """
  del name
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
  return costs.Traced(traced, mesh.shape, model_cfg.dtype, flops)


_STEPS = {'train': _step, 'evaluate': _step}
_SEARCHES = dict.fromkeys(
  ('search', 'search_alone'), realm_programs.trace_search
)
# config.task -> name of a program -> what traces it.
TASKS: dict[str, dict[str, Callable[..., costs.Traced]]] = {
  'retro': {**_STEPS, 'decode': _decode},
  'realm': {**_STEPS, **_SEARCHES, 'embed': realm_programs.trace_embedding},
  'ict': _STEPS,
  'open_qa': {**_STEPS, **_SEARCHES},
}


def trace(
  config: Config | ml_collections.ConfigDict, devices: Devices, name: str
) -> costs.Traced:
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
