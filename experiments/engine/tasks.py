# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What a loop trains: one frozen dataclass of functions.

ICT, REALM, ORQA, RETRO and RETROfit each build a `Task`; the loop knows nothing
else of them.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import Protocol

import grain
import jax

Params = Any
Batch = Mapping[str, Any]
Metrics = dict[str, jax.Array]


class IndexRefresher(Protocol):
  """What lives beside a run: an index that is refreshed from its parameters.

  The loop calls `start` once before the first batch, then `after_step` and
  `metrics` for every step, in this order, on every process.
  """

  def start(self, step: int, params: Params, saved: str) -> None:
    """Gets ready to serve batches.

    Args:
      step: steps taken already.
      params: sharded as in training.
      saved: `index_version` of the checkpoint that is continued, or ''.
    """

  def after_step(self, step: int, params: Params) -> None:
    """Called when a step was dispatched; `params` are its result."""

  def metrics(self, step: int, batch: Batch) -> dict[str, float]:
    """Metrics of the step that took this batch, of this process's rows."""

  def version_to_save(self) -> str:
    """What a checkpoint of now must name to be continued exactly."""

  def close(self) -> None:
    """Stops all that runs in the background."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """A model, its loss, its data and its measurements.

  Attributes:
    init: key -> parameters, boxed with logical axes (`retrieval.nn.partitioning`).
    init_on_host: whether `init` reads checkpoints: it is then not compiled, where
      what it read would be constants of the program.
    frozen: name at the top of the parameters -> whether that part stays as `init`
      made it; None trains all of them.
    loss: (params, batch, key, train) -> (loss, metrics), both float32 means over
      the batch. The loop traces it. `metrics` may hold 'weight', the number of
      terms the means are over (scored tokens): microbatches and validation
      batches are then averaged by weight, so that accumulation equals the large
      batch even where masks are ragged.
    dataset: split ('train' or 'valid') -> checkpointable iterator of batches of
      this process's rows: dicts of numpy arrays [batch / processes, ...].
      'train' never ends; every process gives equally many batches of 'valid'.
    evals: name -> (params -> {metric: value}); run at the end of training.
    pipeline_fingerprint: changes whenever the stream of training examples would,
      seed, batch size, workers and process count apart: these the loop adds.
    tokens_per_step: tokens in one global batch; 0 where it means nothing.
    flops_per_step: model FLOPs of one step, forward and backward; 0 if unknown.
    index_version: fingerprint of the index that the data come from, if any.
    fingerprints: of the data by name, saved with every checkpoint so that a
      trained model can be held against the data it is run with.
    index_refresher: what runs beside, if anything; its version goes into checkpoints
      in place of `index_version`.
    lookup: (params, batch) -> batch, on the host: completes this process's rows
      by what is retrieved with the newest parameters. Called right before each
      step; what it returns must depend on its arguments, and on what the
      index_refresher serves, alone.
    batch_rows: rows of a global batch, where they are padded to more than
      config.batch_size; 0 where they are not.
  """

  init: Callable[[jax.Array], Params]
  loss: Callable[[Params, Batch, jax.Array, bool], tuple[jax.Array, Metrics]]
  dataset: Callable[[str], grain.IterDataset]
  evals: Mapping[str, Callable[[Params], dict[str, float]]] = dataclasses.field(
    default_factory=dict
  )
  pipeline_fingerprint: str = ''
  tokens_per_step: int = 0
  flops_per_step: float = 0.0
  index_version: str = ''
  fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
  index_refresher: IndexRefresher | None = None
  lookup: Callable[[Params, Batch], Batch] | None = None
  batch_rows: int = 0
  init_on_host: bool = False
  frozen: Callable[[str], bool] | None = None
