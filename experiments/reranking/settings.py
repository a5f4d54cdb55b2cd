# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The configs of re-rankers: their fields, and what these accept."""

import dataclasses
from typing import Annotated, Literal

from experiments.engine import optimizers, run_settings
from retrieval import settings
from retrieval.nn import bert, cross_encoder
from retrieval.questions import answers as answers_lib

# Retrievers of blocks that need no training.
Found = Literal['dense', 'bm25', 'tfidf']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
  """Queries, each with a positive passage and negatives from the same list."""

  # questions: the first block with an answer, and blocks without one; chunks: the
  # candidate that ordered.Oracle puts first, and the candidates with lower scores
  kind: Literal['questions', 'chunks'] = 'questions'
  # Run whose blocks (of experiments.open_qa) or chunks (of experiments.retro) are
  # ranked.
  run: str = ''
  retrievers: tuple[Found, ...] = ('dense', 'bm25')  # of questions
  # passages of each list that are looked through
  depth: Annotated[int, settings.Range(2, 2**16)] = 100
  rule: answers_lib.StringRule = 'dpr'  # of answers that are strings
  # negatives that are kept of a query, the best ones
  num_kept: Annotated[int, settings.Range(1, 2**12)] = 50
  # negatives in a batch, drawn anew each time
  num_negatives: Annotated[int, settings.Range(1, 2**12)] = 7
  max_chunks: settings.Size = 8192  # of chunks: queries


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(run_settings.Loop):
  """Root of the configs."""

  task: Literal['cross_encoder']
  seed: settings.Seed
  data_dir: str  # of `examples.run`, if its data have moved
  valid_fraction: settings.Rate  # of the queries, without questions.dev
  optimizer: optimizers.OptimizerConfig
  batch_size: settings.Size  # queries
  questions: run_settings.Questions
  examples: Examples
  # A WordPiece vocabulary; 'minilm' for the one that comes with the package.
  tokenizer: str
  # Where BERT starts: 'minilm' for all-MiniLM-L6-v2, 'packaged' for the packaged
  # reader's, a folder in the Hugging Face layout, or '' for random values.
  start: str
  model: bert.BertConfig
  layout: cross_encoder.PairLayout
