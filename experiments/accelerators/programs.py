# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The programs of a config, traced for devices that are not there."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import ml_collections

from experiments.engine import program as program_lib
from experiments.retro import task as retro_task

Config = ml_collections.ConfigDict


@dataclasses.dataclass(frozen=True)
class Traced:
  """A program that could be compiled."""

  traced: Any  # of jax.jit(...).trace
  mesh: Mapping[str, int]
  dtype: str  # of its products
  model_flops: float  # of the model's formula, on all devices


def _retro(config: Config, devices: Sequence[jax.Device], name: str) -> Traced:
  """The train step or the validation of RETRO or its baseline."""
  task, shapes = retro_task.without_data(config)
  program = program_lib.make_program(task, config, devices=devices)
  batch = {
    key: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=program.rows)
    for key, x in shapes.items()
  }
  with program.context():
    if name == 'train':
      traced, flops = (
        program.step.trace(program.abstract, batch),
        task.flops_per_step,
      )
    else:
      traced = program.evaluate.trace(program.abstract.params, batch)
      flops = task.flops_per_step / 3
  return Traced(traced, program.mesh.shape, config.model.dtype, flops)


# config.task -> names of its programs, and what traces one.
TASKS: dict[str, tuple[tuple[str, ...], Callable[..., Traced]]] = {
  'retro': (('train', 'evaluate'), _retro),
}


def trace(config: Config, devices: Sequence[jax.Device], name: str) -> Traced:
  """Trace a program of a config.

  Raises:
    ValueError: for an unknown one, or a config that does not fit the devices.
  """
  names, tracer = TASKS.get(config.task, ((), None))
  if name not in names:
    raise ValueError(
      f'--program={name!r}: config.task {config.task!r} has {list(names)}.'
    )
  return tracer(config, devices, name)
