# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The language model of a kNN-LM and the folder of its stores.

<workdir>/knn_lm/datastore    keys and next tokens of the training documents
<workdir>/knn_lm/index        of the keys
<workdir>/knn_lm/found-<...>  neighbors of each evaluated token
"""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
from typing import Any

import jax
import numpy as np

from experiments.engine import program as program_lib
from experiments.knn_lm.config import Config, KnnLm
from experiments.retro import evaluate as retro_evaluate
from retrieval.index import index as index_lib, key_values
from retrieval.store import store
from retro_jax.evaluation import knn_lm
from retro_jax.trained import language_model, loading


@dataclasses.dataclass(frozen=True)
class Folder:
  """The folder of one kNN-LM's stores."""

  root: pathlib.Path

  @classmethod
  def of(cls, workdir: str | os.PathLike) -> 'Folder':
    """The folder within a workdir."""
    return cls(pathlib.Path(workdir) / 'knn_lm')

  @property
  def datastore(self) -> pathlib.Path:
    """Folder of the keys and next tokens."""
    return self.root / 'datastore'

  @property
  def index(self) -> pathlib.Path:
    """Folder of the index of the keys."""
    return self.root / 'index'

  def open_index(
    self, pairs: key_values.KeyValueStore, settings: KnnLm
  ) -> index_lib.Index:
    """Open a datastore's index; ValueError for other keys or too low a recall."""
    index = index_lib.open_index(self.index)
    index_lib.check_vectors(index, pairs.store)
    recall = index.report.get(recall_name(settings), 1.0)
    self.check_recall(settings, recall)
    return index

  def check_recall(self, settings: KnnLm, recall: float) -> None:
    """Raise ValueError for a recall below the config's floor."""
    floor = settings.index.recall_floor
    if recall < floor:
      raise ValueError(
        f'{self.index}: {recall_name(settings)} is {recall:.4f}, below '
        f'knn_lm.index.recall_floor={floor}; remove the index if it is there, '
        'and raise knn_lm.index.scann.num_leaves_to_search or num_to_rescore, or '
        'set knn_lm.index.searcher=exact.'
      )


def recall_name(settings: KnnLm) -> str:
  """Name the recall after exact scoring in an index's report."""
  return f'recall@{settings.index.recall_at} of {max(settings.ks)} found'


def load(
  config: Config, workdir: str | os.PathLike, step: str = ''
) -> loading.TrainedRetro:
  """Load the model that makes the keys, onto this process's devices."""
  mesh, rules = program_lib.mesh_and_rules(config, jax.local_devices())
  run = config.knn_lm.model_workdir or workdir
  return language_model.load(
    run, config.data_dir, step=step, mesh=mesh, rules=rules
  )


def num_neighbors(trained: loading.TrainedRetro, config: Config) -> int:
  """RETRO's k while the keys are made; 0 without retrieval."""
  settings = config.knn_lm
  if settings.retrieval and not trained.model.config.cca_layers:
    raise ValueError('knn_lm.retrieval=True: expected a RETRO, no baseline.')
  return settings.num_neighbors if settings.retrieval else 0


def model_fields(
  trained: loading.TrainedRetro, config: Config
) -> dict[str, Any]:
  """JSON fields that determine the key of a token."""
  digest = hashlib.sha256()
  for path, x in jax.tree_util.tree_leaves_with_path(trained.params):
    x = np.asarray(x)
    digest.update(f'{jax.tree_util.keystr(path)} {x.dtype} {x.shape}'.encode())
    digest.update(np.ascontiguousarray(x).tobytes())
  fields = dataclasses.asdict(trained.model.config)
  return {
    'model': store.fingerprint([fields, digest.hexdigest()]),
    'num_neighbors': num_neighbors(trained, config),
    'sequence_chunks': trained.config.sequence_chunks,
  }


def features(
  trained: loading.TrainedRetro, config: Config, batch_size: int
) -> contextlib.AbstractContextManager[knn_lm.FeatureFn]:
  """Return a context manager that gives the compiled function of a batch.

  Batches are divided by rows over the devices of this process.
  """
  return retro_evaluate.scorer(
    trained,
    config,
    batch_size,
    knn_lm.token_features,
    jax.local_devices(),
    replicate=False,
  )
