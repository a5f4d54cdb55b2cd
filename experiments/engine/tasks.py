# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The task of a training loop: one frozen dataclass of functions.

ICT, REALM, ORQA, RETRO and RETROfit each build a `Task`; the loop knows nothing
else of them.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
from typing import Any

import jax

from retrieval.nn import means

Params = Any
Batch = Mapping[str, Any]
Metrics = dict[str, jax.Array]
Means = dict[str, means.Mean]


def no_data(split: str) -> Iterable[Batch]:
  """Placeholder for the data of a task that is only compiled."""
  raise ValueError(
    f'No data of split {split!r}: this task is for the compiler.'
  )


def share_of(config: Any) -> dict[str, int]:
  """Arguments of a dataset: seed, global batch and this process's share of it."""
  return {
    'batch_size': config.batch_size,
    'seed': config.seed,
    'process_index': jax.process_index(),
    'process_count': jax.process_count(),
  }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """A model, its loss, its data and its measurements."""

  # key -> parameters, boxed with logical axes (`retrieval.nn.partitioning`).
  init: Callable[[jax.Array], Params]
  # (params, batch, key, train) -> (loss, metrics), means over the batch that keep
  # their counts: microbatches and validation batches are pooled by them. Counts
  # depend on the batch alone. The loop traces it.
  loss: Callable[[Params, Batch, jax.Array, bool], tuple[means.Mean, Means]]
  # Split ('train' or 'valid') -> checkpointable iterator of batches of this
  # process's rows: dicts of numpy arrays [batch / processes, ...]. 'train' never
  # ends; every process gives equally many batches of 'valid'.
  dataset: Callable[[str], Iterable[Batch]]
  # Changes whenever the stream of training examples changes. The loop adds seed,
  # batch size, workers and process count.
  pipeline_fingerprint: str = ''
  tokens_per_step: int = 0  # of one global batch; 0: not counted
  flops_per_step: float = 0.0  # of the model, forward and backward; 0: unknown
  index_version: str = ''  # fingerprint of the index that the data come from
  # Of the data by name, saved with every checkpoint, so that readers of the model
  # can compare their data with the training data.
  fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
  # An `experiments.realm.refresh.Refresher`, whose version goes into checkpoints in
  # place of `index_version`. The loop calls `start` before the first batch, then
  # `after_step` and `metrics` for every step, in this order, on every process.
  index_refresher: Any = None
  # (params, batch) -> batch, on the host, right before each step: completes this
  # process's rows by retrieval with the newest parameters. The result must depend
  # only on the arguments and on the versions that index_refresher serves.
  complete: Callable[[Params, Batch], Batch] | None = None
  # Rows of a global batch that is padded beyond config.batch_size; 0: no padding.
  batch_rows: int = 0
  # Whether `init` reads checkpoints: it is then not compiled, which would make
  # constants of the values that it read.
  init_on_host: bool = False
  # Key -> parameters for shapes and logical axes alone, where `init` cannot be
  # traced; None: `init`.
  shapes: Callable[[jax.Array], Params] | None = None
  # Name at the top of the parameters -> whether this part keeps its initial values;
  # None trains all parts.
  frozen: Callable[[str], bool] | None = None
