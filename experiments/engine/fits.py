# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether training fits in memory, before anything is allocated.

Before the data are read, by the least bytes that a task must keep of a row;
before the first step, by the bytes that the compiler has planned.
"""

from collections.abc import Callable, Sequence
import math

import jax
import ml_collections

from experiments.engine import program as program_lib, tasks
from retrieval import memory
from retrieval.nn import sharding

Config = ml_collections.ConfigDict


def check_rows(
  config: Config,
  row_bytes: int | float,
  *,
  parts: int = 1,
  devices: Sequence[jax.Device] | None = None,
) -> None:
  """Refuse a batch whose rows a device cannot hold.

  Args:
    row_bytes: least bytes that one row of the batch takes.
    parts: parts into which a batch is cut beside the microbatches.

  Raises:
    ValueError: naming config.batch_size and what fits.
  """
  share = 1 / (parts * _cuts(config, devices))
  free = memory.device_bytes(devices)
  memory.check('config.batch_size', config.batch_size, share * row_bytes, free)


def check_length(
  config: Config,
  field: str,
  value: int,
  row_bytes: Callable[[int], float],
  *,
  devices: Sequence[jax.Device] | None = None,
) -> None:
  """Refuse a length of rows, or a batch of them, that a device cannot hold.

  Args:
    field: name of the setting that decides what a row takes.
    row_bytes: least bytes that a row takes for a value of the field.

  Raises:
    ValueError: naming the field and what fits; where a single row of this
      length fits, or the batch has no room for the shortest, config.batch_size.
  """
  rows = -(-config.batch_size // _cuts(config, devices))
  free = memory.device_bytes(devices)
  if free is None or row_bytes(value) <= free or rows * row_bytes(1) > free:
    check_rows(config, row_bytes(value), devices=devices)
  else:
    memory.check_growth(field, value, lambda n: rows * row_bytes(n), free)


def check_state(program: program_lib.Program) -> None:
  """Refuse parameters and moments that a device cannot hold.

  Raises:
    ValueError: saying what they take.
  """
  free = memory.device_bytes(program.mesh.local_devices)
  needed = sum(
    math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
    for x in jax.tree.leaves(program.abstract)
    if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
  )
  if free is not None and needed > free:
    raise ValueError(
      f"The model's parameters and their optimizer take {memory.gib(needed)} of "
      f'a device, and {memory.gib(free)} are free: expected a smaller '
      'config.model, or more devices in config.mesh.fsdp.'
    )


def check_step(
  program: program_lib.Program,
  config: Config,
  state: program_lib.TrainState,
  batch: tasks.Batch,
) -> None:
  """Compile the step, and refuse one that a device cannot hold.

  The first step uses what is compiled here. The program's context is entered.

  Raises:
    ValueError: naming config.batch_size and what fits.
  """
  plan = program.step.lower(state, batch).compile().memory_analysis()
  if plan is None:  # a backend that does not tell
    return
  needed = plan.temp_size_in_bytes + plan.output_size_in_bytes
  memory.check(
    'config.batch_size',
    config.batch_size,
    (needed - plan.alias_size_in_bytes) / config.batch_size,
    memory.device_bytes(program.mesh.local_devices),
  )


def _cuts(config: Config, devices: Sequence[jax.Device] | None) -> int:
  """Largest number of parts of a batch of which a device holds one at a time."""
  mesh = sharding.make_mesh(**config.mesh, devices=devices)
  return mesh.size * config.optimizer.accumulate_steps
