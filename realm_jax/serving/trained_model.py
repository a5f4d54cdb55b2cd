# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A model with the data that it reads, as functions take it."""

import dataclasses
import os
from typing import Any

from realm_jax.data import examples, folder as data_folder
from realm_jax.nn import open_qa, realm as model_lib
from realm_jax.serving import model_configs


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedModel:
  """A trained model with its data."""

  config: model_configs.RunConfig
  data: data_folder.DataFolder
  layout: examples.Layout
  model: model_lib.Realm | open_qa.BeamScorer
  params: Any
  step: int  # training step; 0 before training
  index_folder: str | os.PathLike = ''
