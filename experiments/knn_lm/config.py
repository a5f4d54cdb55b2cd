# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""All fields of a kNN-LM config: a RETRO's fields, and a datastore's."""

import dataclasses
from typing import Literal

from experiments.retro import config as retro_config
from retrieval import settings
from retrieval.index import index_config

_LAMBDAS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8)
_TEMPERATURES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnnLm:
  """The datastore, and the settings that are tried."""

  # run whose newest model makes the keys; '': --workdir
  model_workdir: str = ''
  # a RETRO evaluated on the same documents; '': none
  retro_workdir: str = ''
  # training documents, evenly spread; 0: all
  max_documents: settings.Count = 0
  tokens_per_shard: settings.Size = 1 << 17
  # Recall is that of the nearest keys among the max(ks) nearest, which are scored
  # again exactly: ScaNN rescores hashes in 8 bits only.
  index: index_config.IndexConfig = index_config.IndexConfig()
  # Settings, each tried with each; a weight of 0 is the model alone.
  ks: tuple[settings.Size, ...] = (8, 64, 256, 1024)
  # Of squared L2 distances.
  temperatures: tuple[settings.Positive, ...] = _TEMPERATURES
  lambdas: tuple[settings.Rate, ...] = _LAMBDAS
  # whose documents choose among them; '': a random half of the evaluated ones
  tune_split: str = ''

  def __post_init__(self):
    for name in ('ks', 'temperatures', 'lambdas'):
      if not getattr(self, name):
        raise settings.SettingsError(name, (), 'at least one')
    if self.index.metric == 'dot_product':
      raise settings.SettingsError('index.metric', 'dot_product', 'squared_l2')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(retro_config.Config):
  """The root of a kNN-LM config."""

  task: Literal['knn_lm'] = 'knn_lm'
  knn_lm: KnnLm = KnnLm()
