# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The configs of in-context retrieval: their fields, and what these accept."""

import dataclasses
from typing import Annotated

from experiments.retro import settings as retro_settings
from retrieval import settings
from retro_jax.evaluation import in_context


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answering:
  """Prompts of questions: examples, passages and the question."""

  # training questions that the examples are drawn from, sets as in config.questions
  examples: tuple[str, ...] = ()
  num_examples: Annotated[int, settings.Range(0, 2**10)] = 5
  # results of any retriever for the questions, in DPR's JSON form
  passages: tuple[str, ...] = ()
  num_passages: Annotated[int, settings.Range(0, 2**10)] = 3
  passage_length: settings.Size = 160  # tokens of a passage with its title
  max_new_tokens: settings.Size = 16
  batch_size: settings.Size = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(retro_settings.Settings):
  """All fields of a config of in-context retrieval."""

  in_context: in_context.Settings  # of language modelling
  answering: Answering
