# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of cross-encoders that re-rank passages."""

import dataclasses
from typing import Annotated, Literal

from experiments.engine import optimizers, run_settings
from retrieval import settings
from retrieval.nn import bert, cross_encoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
  """Queries, each with a positive passage and negatives from the same list."""

  # questions: the first block with an answer, and blocks without one; chunks: the
  # candidate that the oracle puts first, and the candidates with lower scores
  kind: Literal['questions', 'chunks'] = 'questions'
  # Run whose blocks (of question answering) or chunks (of RETRO) are ranked.
  run: str = ''
  # passages of each list that are looked through
  depth: Annotated[int, settings.Range(2, 2**16)] = 100
  # negatives in a batch, drawn anew each time
  num_negatives: Annotated[int, settings.Range(1, 2**12)] = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(run_settings.Loop):
  """Root of the configs of task cross_encoder."""

  task: Literal['cross_encoder'] = 'cross_encoder'
  seed: settings.Seed = 0
  data_dir: str = ''  # of `examples.run`, if its data have moved
  valid_fraction: settings.Rate = 0.1  # of the queries, without questions.dev
  optimizer: optimizers.OptimizerConfig = optimizers.OptimizerConfig()
  batch_size: settings.Size  # queries
  questions: run_settings.Questions = run_settings.Questions()
  examples: Examples = Examples()
  # A WordPiece vocabulary; 'minilm' for the one that comes with the package.
  tokenizer: str = 'minilm'
  # Where BERT starts: 'minilm' for all-MiniLM-L6-v2, 'packaged' for the packaged
  # reader's, a folder in the Hugging Face layout, or '' for random values.
  start: str = 'minilm'
  model: bert.BertConfig = bert.BertConfig(pooler=False)
  layout: cross_encoder.PairLayout = cross_encoder.PairLayout()

  def __post_init__(self):
    """Refuse long pairs, and questions beside chunks."""
    if self.examples.kind == 'chunks' and (
      self.questions.train or self.questions.dev
    ):
      raise settings.SettingsError(
        'questions', self.questions, "none with examples.kind='chunks'"
      )
    if self.layout.row_length > self.model.max_length:
      raise settings.SettingsError(
        'layout.row_length',
        self.layout.row_length,
        f'at most model.max_length={self.model.max_length}',
      )
