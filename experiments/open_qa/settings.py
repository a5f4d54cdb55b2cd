# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The configs of question answering and claims: fields, and what these accept."""

import dataclasses
from typing import Literal

from experiments.engine import run_settings
from experiments.open_qa import dpr_examples
from experiments.realm import settings as realm_settings
from realm_jax.data import examples, reader_rows
from realm_jax.nn import open_qa
from realm_jax.serving import beams
from retrieval import settings
from retrieval.nn import colbert
from retrieval.questions import answers as answers_lib
from retrieval.search import late_interaction, lda


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup:
  """Blocks that are retrieved and read."""

  # blocks in the early loss (released); fewer where the corpus has fewer
  retriever_beam: settings.Size = 5000
  reader_beam: settings.Size = 5  # blocks that are read (released)
  # What counts as an answer in a block: substring (released), dpr, wordpiece;
  # questions whose answers are regular expressions go by these.
  rule: answers_lib.StringRule = 'substring'
  # wordpieces of question and block (released)
  row_length: reader_rows.RowLength = 320
  # of the embedder; longer questions are cut
  question_length: examples.QueryLength = 64
  bm25_scale: settings.NotNegative = 0.2  # factor on scores by words
  # of weighted: BM25's share; experiments.open_qa.tune_hybrid measures shares
  words_weight: settings.Share = 0.4
  num_topics: settings.Size = lda.LdaConfig.num_topics  # of lda


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reranker:
  """A model that orders the first blocks of the retriever anew."""

  path: str = ''  # run of experiments.reranking.train; '': none
  candidates: settings.Size = 50  # blocks that it orders


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
  """Loss of retriever and reader."""

  early_weight: settings.NotNegative = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dpr(dpr_examples.MineConfig):
  """Contrastive training of the retriever."""

  # a batch is encoded in so many parts
  gradient_cache_parts: realm_settings.Parts = 1
  mask_duplicates: bool = True  # copies of a row's block are no negatives
  # run of experiments.open_qa that finds the blocks; '': BM25 of the data folder
  run: str = ''
  # its lists, of `depth` blocks each; the first blocks of each come first
  retrievers: tuple[Literal['dense', 'bm25'], ...] = ('dense', 'bm25')
  examples: str = ''  # DPR's training JSON in place of such blocks
  export: str = ''  # file to write BM25's blocks to, in that form


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmStarts(realm_settings.WarmStarts):
  """Runs that others start from."""

  dpr: realm_settings.WarmStart


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateQuestions:
  """Evaluation of a reader."""

  # the run that is evaluated; '' or None for --workdir
  workdir: str | None = None
  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  retriever: Literal[('', *beams.KINDS)] = ''  # '': as trained
  words_weight: settings.Share = 0.0  # of weighted; 0: as trained
  questions: tuple[str, ...] = ()  # as questions.train
  max_questions: settings.Count = 0  # of each; 0: all
  ks: tuple[realm_settings.Ranks, ...] = (5, 10, 50, 100, 500, 1000, 5000)
  rules: tuple[answers_lib.StringRule, ...] = ('substring', 'dpr')
  retriever_beam: settings.SizeOrZero = 0  # 0: as trained
  reader_beam: settings.SizeOrZero = 0
  batch_size: settings.Size = 16
  read_at_once: settings.SizeOrZero = 0  # blocks, on one device; 0: by device
  answers: settings.Size = 5  # kept of each question


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateClaims:
  """Evaluation of a classifier."""

  workdir: str | None = None
  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  retriever: Literal[('', *beams.KINDS)] = ''  # '': as trained
  words_weight: settings.Share = 0.0  # of weighted; 0: as trained
  claims: tuple[str, ...] = ()  # as claims.train
  max_claims: settings.Count = 0  # of each; 0: all
  # How the class is chosen: best pair of block and class (released), or
  # marginal, summed over blocks.
  rule: Literal['best', 'marginal'] = 'best'
  # evidence among the first k blocks
  ks: tuple[realm_settings.Ranks, ...] = (1, 5, 20, 100)
  retriever_beam: settings.SizeOrZero = 0  # 0: as trained
  reader_beam: settings.SizeOrZero = 0
  batch_size: settings.Size = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(EvaluateQuestions, EvaluateClaims):
  """Evaluation of either."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claims:
  """Claim sets, DATASET:SPLIT=FILE,... each, of one data set.

  Data sets are fever, hover and custom; see retrieval/questions/claims.py.
  """

  train: tuple[str, ...] = ()
  dev: tuple[str, ...] = ()
  labels: tuple[str, ...] = ()  # of custom, in the order of the classes
  max_train: settings.Count = 0  # of all; 0: all of them
  max_dev: settings.Count = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(realm_settings.Settings):
  """Root of the configs."""

  questions: run_settings.Questions
  claims: Claims
  realm_from: str
  retriever: Literal[beams.KINDS]
  reranker: Reranker
  lookup: Lookup
  reader: open_qa.OpenQaConfig
  loss: Loss
  train_blocks: bool
  dpr: Dpr
  colbert: colbert.ColbertConfig
  colbert_index: late_interaction.ColbertConfig
  warm_start: WarmStarts
  evaluate: Evaluate
