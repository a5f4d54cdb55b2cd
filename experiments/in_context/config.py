# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The fields of in-context retrieval: data and evaluation."""

import dataclasses
from typing import Annotated, Literal

from experiments.retro import config as retro_config, evaluate as retro_evaluate
from retrieval import settings
from retro_jax.evaluation import in_context as in_context_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(retro_config.Config):
  """The root of a config of in-context retrieval; nothing is trained."""

  task: Literal['in_context'] = 'in_context'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answering:
  """Prompts of questions: examples, passages and the question."""

  # training questions that the examples are drawn from, sets as NAME:SPLIT=FILE
  examples: tuple[str, ...] = ()
  num_examples: Annotated[int, settings.Range(0, 2**10)] = 5
  # results of any retriever for the questions, in DPR's JSON form
  passages: tuple[str, ...] = ()
  num_passages: Annotated[int, settings.Range(1, 2**10)] = 3
  passage_length: settings.Size = 160  # tokens of a passage with its title
  max_new_tokens: settings.Size = 16
  batch_size: settings.Size = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(retro_evaluate.Evaluate):
  """Evaluation of a decoder with passages in its prompt."""

  in_context: in_context_lib.Settings = in_context_lib.Settings()
  # Sets that are answered, as NAME:SPLIT=FILE; (): bits per byte are measured.
  questions: tuple[str, ...] = ()
  max_questions: settings.Count = 0  # of each set; 0: all
  # Whether files may hold another number of questions than is published.
  allow_other_counts: bool = False
  answering: Answering = Answering()
