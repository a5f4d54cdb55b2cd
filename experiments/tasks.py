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

import grain
import jax

Params = Any
Batch = Mapping[str, Any]
Metrics = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """A model, its loss, its data and its measurements.

  Attributes:
    init: key -> parameters, boxed with logical axes (`retrieval.partitioning`).
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
