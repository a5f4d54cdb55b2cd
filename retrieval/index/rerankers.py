# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained re-rankers, loaded by the kind that their checkpoint states."""

import os

from retrieval.index import cross_reranker, reranking
from retrieval.nn import colbert_encoder
from retrieval.store import checkpoints

# config.task of the run that trained the model -> its loader: (folder, step) ->
# re-ranker.
_LOADERS = {
  'cross_encoder': cross_reranker.load,
  'colbert': colbert_encoder.load,
}


def load(path: str | os.PathLike) -> reranking.Reranker:
  """Load the re-ranker of a run's folder.

  The step is the best one by the run's best_metric, or the newest without one.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if the checkpoint is damaged or of another kind of model.
  """
  config = checkpoints.find(str(path)).config
  kind = config.get('task', '')
  if kind not in _LOADERS:
    raise ValueError(
      f'{path}: a checkpoint of task {kind!r}, expected a re-ranker, one of '
      f'{sorted(_LOADERS)}, as experiments.reranking.train or '
      'experiments.open_qa.train writes it.'
    )
  return _LOADERS[kind](path, 'best' if config.best_metric else '')
