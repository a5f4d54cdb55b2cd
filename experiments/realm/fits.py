# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a training step fits in memory, by the least that it must keep.

The estimates are lower bounds: a step that they refuse could not run.
"""

from collections.abc import Sequence

import jax
import ml_collections

from realm_jax.data import examples
from realm_jax.nn import config as config_lib
from retrieval import memory
from retrieval.nn import bert, sharding

Config = ml_collections.ConfigDict
_FLOAT = 4


def check_rows(
  config: Config,
  row_bytes: int,
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


def check_candidates(
  config: Config,
  layout: examples.Layout,
  model: config_lib.RealmConfig,
  devices: Sequence[jax.Device] | None = None,
) -> None:
  """Refuse candidates of REALM that a device cannot hold beside each other.

  Raises:
    ValueError: naming config.layout.num_candidates and what fits; where two
      candidates do not fit either, config.batch_size.
  """
  each = bert.kept_bytes(model.encoder, layout.joint_length)
  each += _FLOAT * layout.max_targets * model.encoder.vocab_size
  rows = -(-config.batch_size // _cuts(config, devices))
  free, count = memory.device_bytes(devices), layout.num_candidates
  if free is None or 2 * rows * each <= free:
    name = 'config.layout.num_candidates'
    memory.check(name, count, rows * each, free)
  else:
    check_rows(config, count * each, devices=devices)


def _cuts(config: Config, devices: Sequence[jax.Device] | None) -> int:
  """Number of parts of a batch of which a device holds one at a time."""
  shape = sharding.make_mesh(**config.mesh, devices=devices).shape
  return shape['data'] * shape['fsdp'] * config.optimizer.accumulate_steps
