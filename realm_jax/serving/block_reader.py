# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Read retrieved blocks with a trained model, in batches on all local devices."""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from realm_jax.data import examples, question_rows
from realm_jax.serving import (
  beams,
  reader_configs,
  trained_model,
)


class BlockReader(abc.ABC):
  """Retrieves and reads with a trained model."""

  SOURCE = question_rows.QuestionSource

  def __init__(
    self,
    trained: trained_model.TrainedModel,
    retriever: beams.BeamRetriever,
    read: Callable[[Any, Any], Any],
    *,
    search: bool,
    retriever_beam: int = 0,
    reader_beam: int = 0,
    batch_size: int = 1,
  ):
    """Place the parameters; compile at the first batch.

    Args:
      read: (params, batch) -> results, whose leading axes are the rows.
      search: whether to look for answers, or evidence, in the blocks.
      retriever_beam: blocks to retrieve; 0: as in training.
      reader_beam: blocks to read; 0: as in training.
      batch_size: rows at a time, filled up to a multiple of the devices.
    """
    self.trained = trained
    self._layout = reader_configs.reader_layout(trained.config, trained.data)
    self._selector = beams.make_selector(
      trained.config,
      trained.data,
      retriever,
      search=search,
      retriever_beam=retriever_beam,
      reader_beam=reader_beam,
    )
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
    self._params = jax.device_put(trained.params, everywhere)
    self._read = jax.jit(mapped)
    self._batch_size = batch_size
    self._rows = -(-batch_size // len(devices)) * len(devices)

  def __call__(
    self,
    asked: Sequence[Any],
    progress: Callable[[int, int], None] | None = None,
  ) -> Iterator[Any]:
    """Yield the result of each question or claim, in their order."""
    source = self.SOURCE(asked, self.trained.data.tokenizer, self._layout)
    for low in range(0, len(source), self._batch_size):
      high = min(low + self._batch_size, len(source))
      rows = source.rows(np.arange(low, high), self._rows)
      batch = self._selector.select(self._params, rows, source)
      placed = jax.device_put(model_fields(batch), self._split)
      found = jax.device_get(self._read(self._params, placed))
      for row in range(high - low):
        yield self._result(asked[low + row], batch, found, row)
      if progress:
        progress(high, len(source))

  @abc.abstractmethod
  def _result(
    self, asked: Any, batch: examples.Batch, found: Any, row: int
  ) -> Any:
    """Return the result of a question, in a row of a batch and of `found`."""


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
