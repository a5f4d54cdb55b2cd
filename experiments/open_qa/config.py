# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of question answering (ORQA) and of DPR.

Lee et al. 2019 (ORQA), sections 4 to 6; Guu et al. 2020 (REALM), section 4;
Karpukhin et al. 2020 (DPR).
"""

import dataclasses
from typing import Annotated, Literal

import ml_collections

from experiments.engine import configs, run_settings
from experiments.realm import config as realm_config, refresh as refresh_lib
from realm_jax.data import examples, reader_rows
from realm_jax.objectives import in_batch
from realm_jax.trained import reader_configs
from retrieval import settings

VARIANTS = 'base', 'blocks', 'bm25', 'random'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(reader_configs.ReaderConfig, realm_config.Run):
  """Root of the configs of task open_qa: `encoder` is the reader's BERT."""

  task: Literal['open_qa'] = 'open_qa'
  questions: run_settings.Questions = run_settings.Questions()
  reading: reader_rows.Reading = reader_rows.Reading()
  # frozen: nothing changes the blocks' vectors
  refresh: refresh_lib.RefreshConfig = refresh_lib.RefreshConfig(
    schedule='frozen'
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast(in_batch.BatchConfig):
  """Questions with blocks that answer them, and blocks that do not."""

  # BM25's blocks to look through (paper: 100)
  depth: Annotated[int, settings.Range(1, 2**20)] = 100
  # of each question (paper: 1)
  num_hard_negatives: Annotated[int, settings.Range(0, 2**12)] = 1

  def __post_init__(self):
    settings.check(self)
    if self.depth <= self.num_hard_negatives:
      raise ValueError(
        f'depth={self.depth}, num_hard_negatives={self.num_hard_negatives}: '
        'expected fewer negatives than blocks.'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DprConfig(realm_config.Run):
  """Root of the configs of task dpr: the embedder is trained."""

  task: Literal['dpr'] = 'dpr'
  # of the questions, held out without questions.dev
  valid_fraction: settings.Rate = 0.02
  questions: run_settings.Questions = run_settings.Questions()
  dpr: Contrast = Contrast()
  question_length: examples.QueryLength = 64  # longer questions are cut


def set_variant(c: ml_collections.ConfigDict, arg: str) -> None:
  """Apply the argument of a config file of a reader.

  base: ORQA, the blocks' side frozen, the questions' side trained; blocks: the blocks'
  side trained, too, and the index refreshed; bm25: blocks retrieved by words, only the
  reader is trained; random: random blocks, the score of the reader alone; test, or any
  of these with _test, runs on a CPU in seconds.

  Raises:
    ValueError: for another argument.
  """
  kind = arg.removesuffix('test').removesuffix('_') or 'base'
  configs.check_arg(kind, VARIANTS)
  if kind in ('bm25', 'random'):
    c.retriever = kind
  elif kind == 'blocks':
    c.train_blocks = True
    c.refresh.update(schedule='sync', every=500)
  if arg.endswith('test'):
    realm_config.set_test_size(c)
    c.refresh.every = 2
    c.lookup.update(
      retriever_beam=20, reader_beam=3, row_length=80, question_length=24
    )
    c.reader.update(span_hidden_size=16, max_span_width=4)
