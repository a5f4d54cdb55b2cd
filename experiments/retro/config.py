# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""All fields of a RETRO config: data, model and training."""

import dataclasses
from typing import Annotated, Literal

from experiments.engine import optimizers, run_settings
from retrieval import settings
from retrieval.index import index_config
from retrieval.store import cluster_settings
from retrieval.text import near_duplicates
from retro_jax.trained import loading


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
  """The tokenizer."""

  path: str = ''  # '' trains a SentencePiece model on the corpus
  vocab_size: settings.Size = 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
  """Rows that a joint model learns to read from, in place of the corpus."""

  # Files in DPR's JSON form: question is a prompt, answers go on from it, ctxs are what
  # it reads. (): the corpus with its neighbors.
  train: tuple[str, ...] = ()
  valid: tuple[str, ...] = ()
  # prompts of a row, which read the same passages; they follow each other in a file
  prompts: settings.Size = 1
  # chunks of a prompt; the last reads
  prompt_chunks: Annotated[int, settings.Range(1, 2**16)] = 1
  # most tokens of what follows
  answer_length: Annotated[int, settings.Range(1, 2**16)] = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(run_settings.Loop, loading.RunConfig):
  """The root of a RETRO config."""

  task: Literal['retro', 'in_context'] = 'retro'
  seed: settings.Seed = 0
  # Workdir of a run, or folder of a packed model, whose weights training starts from; a
  # baseline takes the decoder of either, a RETRO adds retrieval to a baseline's. '': new.
  start_from: str = ''
  # Workdir of a baseline whose decoder is frozen and extended by retrieval (RETROfit); ''
  # trains all weights from the start.
  retrofit_from: str = ''
  reading: Reading = Reading()
  tokenizer: Tokenizer = Tokenizer()
  # Training documents that resemble a held-out one are left out; threshold 0: none.
  deduplicate: near_duplicates.Settings = near_duplicates.Settings(
    threshold=0.0
  )
  index: index_config.IndexConfig = index_config.IndexConfig()
  # where shards are made
  cluster: cluster_settings.Cluster = cluster_settings.Cluster()
  optimizer: optimizers.OptimizerConfig = optimizers.OptimizerConfig()
  batch_size: settings.Size = 8  # sequences
  num_workers: Annotated[int, settings.Range(0, 256)] = 0  # loader processes
