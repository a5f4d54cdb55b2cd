# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""An evaluated kNN-LM as a model: its datastore, with the setting that was tuned."""

from collections.abc import Callable
import dataclasses
import functools
import os
import pathlib

import jax
import numpy as np

from experiments.knn_lm import evaluate, prepare
from retrieval.store import manifests
from retro_jax.evaluation import knn_lm
from retro_jax.trained import language_model

_distributions = jax.jit(knn_lm.token_distributions, static_argnames='model')


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KnnLanguageModel(language_model.LanguageModel):
  """A model with the likelihoods of a kNN-LM; it draws no samples."""

  # keys [n, D] -> distances and values [n, k]
  search: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
  temperature: float  # of squared L2 distances
  weight: float  # lambda, of p_kNN

  def sample(self, *unused_prompts, **unused_settings):
    """Raise ValueError: there is no decoding with the datastore."""
    raise ValueError('A kNN-LM draws no samples: expected likelihoods alone.')

  def _token_scorer(self):
    params = jax.device_put(self.params)
    distributions = functools.partial(_distributions, self.model, params)
    return knn_lm.token_scorer(
      distributions, self.search, self.temperature, self.weight
    )


def is_mixed(workdir: str | os.PathLike) -> bool:
  """Whether a folder is that of an evaluated kNN-LM."""
  return (pathlib.Path(workdir) / evaluate.FILE).is_file()


def load(
  workdir: str | os.PathLike, data_dir: str = '', step: str = ''
) -> KnnLanguageModel:
  """Load the kNN-LM that experiments.evaluate tuned.

  Raises:
    ValueError: when its datastore or index is of another model.
  """
  path = pathlib.Path(workdir) / evaluate.FILE
  content = manifests.read_object(path)
  chosen = next(row for row in content['rows'] if row['name'] == 'kNN-LM')
  run = content['settings']['model_workdir'] or workdir
  alone = language_model.load(run, data_dir, step=step)
  datastore = prepare.Datastore(workdir, alone)
  config = dataclasses.replace(alone.config, num_neighbors=0)
  return KnnLanguageModel(
    **vars(alone) | {'config': config},
    search=functools.partial(datastore.search, k=chosen['k']),
    temperature=chosen['temperature'],
    weight=chosen['lambda'],
  )
