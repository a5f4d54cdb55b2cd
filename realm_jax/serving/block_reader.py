# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Read retrieved blocks with a trained model, in batches on all local devices."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from realm_jax.data import examples
from realm_jax.serving import beam_selector


class BlockReader:
  """Selects blocks for questions or claims, and reads them."""

  def __init__(
    self,
    params: Any,
    selector: beam_selector.BeamSelector,
    read: Callable[[Any, Any], Any],
    batch_size: int,
  ):
    """Place the parameters; compile at the first batch.

    Args:
      read: (params, batch) -> results, whose leading axes are the rows.
      batch_size: rows at a time, filled up to a multiple of the devices.
    """
    devices = jax.local_devices()
    mesh = jax.make_mesh(
      (len(devices),),
      ('data',),
      axis_types=(jax.sharding.AxisType.Auto,),
      devices=devices,
    )
    spec = jax.sharding.PartitionSpec
    mapped = jax.shard_map(
      read,
      mesh=mesh,
      in_specs=(spec(), spec('data')),
      out_specs=spec('data'),
      check_vma=False,
    )
    everywhere = jax.sharding.NamedSharding(mesh, spec())
    self._split = jax.sharding.NamedSharding(mesh, spec('data'))
    self._params = jax.device_put(params, everywhere)
    self._read, self._selector = jax.jit(mapped), selector
    self._batch_size = batch_size
    self._rows = -(-batch_size // len(devices)) * len(devices)

  def __call__(
    self, source: Any, progress: Callable[[int, int], None] | None = None
  ) -> Iterator[tuple[int, examples.Batch, Any, int]]:
    """Read for all questions or claims of a source, in their order.

    Yields:
      Number of the question, its completed batch, the results of the batch, and
      the question's row in both.
    """
    for low in range(0, len(source), self._batch_size):
      high = min(low + self._batch_size, len(source))
      rows = source.rows(np.arange(low, high), self._rows)
      batch = self._selector.select(self._params, rows, source)
      placed = jax.device_put(model_fields(batch), self._split)
      found = jax.device_get(self._read(self._params, placed))
      for row in range(high - low):
        yield low + row, batch, found, row
      if progress:
        progress(high, len(source))


def model_fields(batch: examples.Batch) -> dict[str, Any]:
  """Return the fields that the model reads; cut the beam."""
  read = batch['reader_valid'].shape[1]
  beam = ('beam_vectors', 'beam_scores', 'beam_valid')
  return {
    name: x[:, :read] if name in beam else x
    for name, x in batch.items()
    if name in (*beam, 'question_ids', 'question_mask')
    or (name.startswith('reader_') and name != 'reader_starts')
  }
