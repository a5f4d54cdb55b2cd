# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of a run of a reader; `model_configs` has REALM's."""

import dataclasses
from typing import Literal

from realm_jax.data import examples, folder as data_folder, reader_rows
from realm_jax.nn import open_qa
from realm_jax.trained import model_configs
from retrieval import settings
from retrieval.questions import answers as answers_lib
from retrieval.search import late_interaction, names
from retrieval.store import checkpoints


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup:
  """Blocks that are retrieved and read."""

  # blocks in the early loss (released); fewer where the corpus has fewer
  retriever_beam: settings.Size = 5000
  reader_beam: settings.Size = 5  # blocks that are read (released)
  # What counts as an answer in a block: substring (released) or dpr;
  # questions whose answers are regular expressions go by these.
  rule: answers_lib.StringRule = 'substring'
  # wordpieces of question and block (released)
  row_length: reader_rows.RowLength = 320
  # wordpieces of a block's title, read between question and block; 0: not read (paper)
  title_length: settings.Count = 0
  # of the embedder; longer questions are cut
  question_length: examples.QueryLength = 64
  # of weighted: BM25's share
  words_weight: settings.Share = 0.4
  # filter on the documents' metadata: "{'year': (2010, 2020), 'lang': ['en']}"
  where: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reranker:
  """A model that re-ranks the first blocks of the retriever."""

  path: str = ''  # folder of a cross-encoder or a ColBERT; '': none
  candidates: settings.Size = 50  # blocks that it orders


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderConfig(model_configs.RunConfig):
  """A run of a model that reads retrieved blocks."""

  task: str = 'open_qa'
  # Where the model starts: a run of REALM (both parts); `embedder_from` and
  # `encoder_from` go before it, but for 'packaged'. The vectors of that run's index
  # are taken over if they are of the same parameters and blocks, and also if the run
  # trained the questions' side alone, when they are of earlier parameters. Only
  # train_blocks=True embeds the blocks anew.
  realm_from: str = ''
  retriever: Literal[names.FOR_TEXTS] = 'dense'
  reranker: Reranker = Reranker()
  lookup: Lookup = Lookup()
  train_blocks: bool = False
  # of the retriever 'colbert'
  colbert_index: late_interaction.ColbertConfig = (
    late_interaction.ColbertConfig()
  )
  reader: open_qa.SpanConfig = open_qa.SpanConfig()


def reader_config(
  config: ReaderConfig, vocab_size: int
) -> open_qa.OpenQaConfig:
  """Return retriever and reader."""
  realm = model_configs.realm_config(config, vocab_size)
  return open_qa.OpenQaConfig(realm=realm, **vars(config.reader))


def reader_layout(
  config: ReaderConfig, data: data_folder.DataFolder
) -> reader_rows.ReaderLayout:
  """Return the lengths of the reader's rows and the tokenizer's specials.

  Raises:
    SettingsError: for rows of more tokens than the model has positions.
  """
  realm = model_configs.realm_config(config, data.tokenizer.vocab_size)
  read_by = {'row_length': realm.encoder}
  if config.retriever in names.WITH_VECTORS:
    read_by['question_length'] = realm.embedder
  for name, bert in read_by.items():
    length = getattr(config.lookup, name)
    if length > bert.max_length:
      expected = f'at most {bert.max_length}, the positions of the model'
      raise settings.SettingsError(f'config.lookup.{name}', length, expected)
  return reader_rows.ReaderLayout(
    row_length=config.lookup.row_length,
    title_length=config.lookup.title_length,
    question_length=config.lookup.question_length,
    max_span_width=config.reader.max_span_width,
    cls_id=data.tokenizer.cls_id,
    sep_id=data.tokenizer.sep_id,
    pad_id=data.tokenizer.pad_id,
  )


def of_saved(saved: checkpoints.Saved) -> model_configs.RunConfig:
  """Return the config of a checkpoint; unknown fields are ignored."""
  reads = 'reader' in saved.params
  kind = ReaderConfig if reads else model_configs.RunConfig
  fields = saved.config.to_dict()
  return settings.build(kind, fields, 'config', ignore_others=True)
