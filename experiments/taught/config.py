# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""All fields of a config that teaches an embedder: a RETRO's, and the retriever's."""

import dataclasses
from typing import Annotated, Literal

from experiments.retro import config as retro_config
from retrieval import settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retriever:
  """An embedder taught by a language model."""

  # workdir of the model that teaches: a RETRO reads neighbors by cross-attention, a
  # baseline or an imported decoder as a prefix
  language_model: str = ''
  # One of `retrieval.nn.objectives`.
  objective: Literal['replug_lsr', 'emdr2', 'pdist'] = 'replug_lsr'
  # K; at most the neighbors stored
  num_candidates: Annotated[int, settings.Range(2, 2**16)] = 8
  queries: settings.Size = 4  # chunks of a row that ask for candidates
  # REPLUG's gamma; cosines are divided by it
  temperature: settings.Positive = 0.05
  # REPLUG's beta; nats a token are divided by it
  lm_temperature: settings.Positive = 0.05
  # wordpieces of a text
  max_length: Annotated[int, settings.Range(3, 2**17)] = 64
  # steps between two indices; 0: the first one serves to the end
  refresh_every: settings.Count = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(retro_config.Config):
  """The root of a config that teaches an embedder."""

  task: Literal['taught'] = 'taught'
  retriever: Retriever = Retriever()

  def __post_init__(self):
    """Check the fields against each other."""
    for name, limit, most in (
      ('max_length', 'embedder.max_length', self.embedder.max_length),
      ('num_candidates', 'neighbors.stored', self.neighbors.stored),
      ('queries', 'sequence_chunks - 1', self.sequence_chunks - 1),
    ):
      if (value := getattr(self.retriever, name)) > most:
        expected = f'at most {limit}={most}'
        raise settings.SettingsError(f'retriever.{name}', value, expected)
