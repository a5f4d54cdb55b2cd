# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fields of the config of a reader or a classifier, beside those of a REALM."""

import dataclasses
from typing import Literal

from realm_jax.data import examples, folder as data_folder, reader_rows
from realm_jax.nn import open_qa
from realm_jax.objectives import claims
from realm_jax.serving import model_configs
from retrieval import settings
from retrieval.questions import (
  answers as answers_lib,
  claims as claims_lib,
  questions as questions_lib,
)
from retrieval.search import late_interaction, lda, names
from retrieval.store import checkpoints


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
  # wordpieces of a block's title, read between question and block; 0: not read (paper)
  title_length: settings.Count = 0
  # of the embedder; longer questions are cut
  question_length: examples.QueryLength = 64
  bm25_scale: settings.NotNegative = 0.2  # factor on scores by words
  # of weighted: BM25's share; experiments.tune_hybrid measures shares
  words_weight: settings.Share = 0.4
  num_topics: settings.Size = lda.LdaConfig.num_topics  # of lda
  # filter on the documents' metadata: "{'year': (2010, 2020), 'lang': ['en']}"
  where: str = settings.rare('')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reranker:
  """A model that orders the first blocks of the retriever anew."""

  path: str = ''  # run of task cross_encoder; '': none
  candidates: settings.Size = 50  # blocks that it orders


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamConfig(model_configs.RunConfig):
  """A run whose model reads the blocks that a retriever finds."""

  # Where the model starts: a run of REALM (both parts); `embedder_from` and
  # `encoder_from` go before it, but for 'packaged'. The vectors of that run's index
  # are taken over if they are of the same parameters and blocks, and also if the run
  # trained the questions' side alone, when they are of earlier parameters. Only
  # train_blocks=True embeds the blocks anew.
  realm_from: str = ''
  retriever: Literal[names.FOR_TEXTS] = 'dense'
  reranker: Reranker = settings.rare(Reranker())
  lookup: Lookup = Lookup()
  train_blocks: bool = False
  # of the retriever 'colbert'
  colbert_index: late_interaction.ColbertConfig = settings.rare(
    late_interaction.ColbertConfig()
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderConfig(BeamConfig):
  """A reader of spans."""

  task: str = 'open_qa'
  reader: open_qa.SpanConfig = open_qa.SpanConfig()


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
class ClassifierConfig(BeamConfig):
  """A classifier of claims."""

  task: str = 'claims'
  claims: Claims = Claims()


def reader_config(
  config: BeamConfig, vocab_size: int
) -> open_qa.OpenQaConfig | claims.ClaimsConfig:
  """Return retriever and reader: of spans, or of classes for task 'claims'."""
  realm = model_configs.realm_config(config, vocab_size)
  if isinstance(config, ClassifierConfig):
    return claims.ClaimsConfig(
      realm=realm, num_classes=len(claim_labels(config.claims))
    )
  return open_qa.OpenQaConfig(realm=realm, **vars(config.reader))


def claim_labels(sets: Claims) -> tuple[str, ...]:
  """Return the labels of the data set that claim sets are of.

  Raises:
    ValueError: for no set, or sets of several data sets.
  """
  if not sets.train:
    raise ValueError(
      "claims.train is empty: expected sets such as ('fever:train=train.jsonl',)."
    )
  specs = (*sets.train, *sets.dev)
  names = {questions_lib.parse_spec(spec)[0] for spec in specs}
  if len(names) > 1:
    raise ValueError(
      f'claims.train and claims.dev are of {sorted(names)}: expected one data '
      'set, whose labels are the classes.'
    )
  return claims_lib.check_labels(names.pop(), sets.labels)


def reader_layout(
  config: BeamConfig, data: data_folder.DataFolder
) -> reader_rows.ReaderLayout:
  """Return the lengths of the reader's rows and the tokenizer's specials."""
  reader = getattr(config, 'reader', open_qa.SpanConfig())  # claims: no spans
  return reader_rows.ReaderLayout(
    row_length=config.lookup.row_length,
    title_length=config.lookup.title_length,
    question_length=config.lookup.question_length,
    max_span_width=reader.max_span_width,
    cls_id=data.tokenizer.cls_id,
    sep_id=data.tokenizer.sep_id,
    pad_id=data.tokenizer.pad_id,
  )


def of_saved(saved: checkpoints.Saved) -> model_configs.RunConfig:
  """Return what a checkpoint's config says; other fields are left out."""
  kind = model_configs.RunConfig
  if 'reader' in saved.params:
    kind = ReaderConfig
  elif 'classifier' in saved.params:
    kind = ClassifierConfig
  config = saved.config
  fields = config.to_dict() if hasattr(config, 'to_dict') else config
  return settings.build(kind, fields, 'config', ignore_others=True)
