# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of a run of REALM: its data, model and index.

The configs of training in experiments/ extend these dataclasses.
"""

import dataclasses
import os
from typing import Annotated, Any, Literal

from flax import linen as nn

from realm_jax.data import examples, folder as data_folder
from realm_jax.nn import config as config_lib
from retrieval import settings
from retrieval.index import index_config
from retrieval.nn import bert, bert_checkpoint
from retrieval.text import blocks as blocks_lib, corpus as corpus_lib

PACKAGED = 'packaged'  # the models of the package, in place of a run's folder
Workers = Annotated[int, settings.Range(1, 4096)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertSection:
  """One BERT: its checkpoint, and the fields that differ from the checkpoint's.

  Fields that are 0, '' or -1 are as in the checkpoint; without one, BERT base's.
  """

  # folder in the Hugging Face layout; 'minilm' for the packaged
  # all-MiniLM-L6-v2; '' starts at random
  checkpoint: str = ''
  d_model: Literal[0] | bert.Width = 0
  d_ff: Literal[0] | bert.Width = 0
  num_heads: Literal[0] | bert.Width = 0
  num_layers: bert.Layers = 0
  max_length: Literal[0] | bert.Length = 0
  activation: Literal['', bert.Activation] = ''
  layer_norm_eps: Literal[-1] | bert.Epsilon = -1.0
  dropout_rate: Literal[-1] | settings.Rate = -1.0  # of attention, too
  initializer_range: Literal[-1] | settings.NotNegative = -1.0
  remat: bool = False  # recompute each layer in the backward pass
  dtype: settings.Dtype = 'float32'  # compute


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
  """Preparation of the token stores."""

  documents_per_shard: settings.Size = 512
  num_processes: Workers = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blocks:
  """Spans of sentences that are retrieved."""

  # wordpieces with title and specials (paper)
  max_length: Annotated[int, settings.Range(7, 2**17)] = 288
  # True: records are blocks already
  whole_documents: bool = False
  language: str = 'en'
  # regular expressions; documents whose title begins with a match are left out.
  # The default ones, of lists and pointers, are for pages of Wikipedia alone
  # (`corpus.wikipedia`)
  drop_titles: tuple[str, ...] = blocks_lib.DROPPED_TITLES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vectors:
  """Embedding of the blocks."""

  batch_tokens: settings.SizeOrZero = 0  # 0 chooses by device
  dtype: settings.Dtype = 'float32'  # on disk


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
  """Data, embedder, encoder and index of a run."""

  task: str = 'realm'
  data_dir: str = ''  # '' is <workdir>/data; name the folder to share it
  corpus: corpus_lib.CorpusConfig = corpus_lib.CorpusConfig()  # Z
  tokens: Tokens = Tokens()
  blocks: Blocks = Blocks()
  layout: examples.Lengths = examples.Lengths()
  model: config_lib.VectorConfig = config_lib.VectorConfig()
  embedder: BertSection = BertSection()
  encoder: BertSection = BertSection()
  # Runs that start this one: of ICT (or REALM) its embedder, of MLM (or REALM)
  # its encoder. 'packaged' is what comes with the package.
  embedder_from: str = ''
  encoder_from: str = ''
  vectors: Vectors = Vectors()
  # ScaNN never builds the same index twice, so that only exact search repeats a
  # run bit for bit.
  index: index_config.IndexConfig = index_config.IndexConfig(
    searcher='exact', metric='dot_product', recall_floor=0.9, num_queries=200
  )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
  """A trained model with its data."""

  config: RunConfig
  data: data_folder.DataFolder
  layout: examples.Layout
  model: nn.Module  # a `realm.Realm` or `open_qa.OpenQa`
  params: Any
  step: int  # training step; 0 before training
  index_folder: str | os.PathLike = ''

  def __repr__(self) -> str:
    kind = type(self).__name__
    return f'<{kind} of step {self.step}: data {self.data.root}>'


def bert_config(section: BertSection, vocab_size: int) -> bert.BertConfig:
  """Return one BERT: its checkpoint's sizes, overridden by the fields set.

  Raises:
    ValueError: when the checkpoint has another vocabulary.
  """
  fields = vars(section).copy()
  path = fields.pop('checkpoint')
  fields['attention_dropout_rate'] = section.dropout_rate
  # A rate of 0.0 is a choice.
  changes = {
    name: x
    for name, x in fields.items()
    if (x >= 0 if isinstance(x, float) else x)
  }
  if not path:
    return bert.BertConfig(vocab_size=vocab_size, **changes)
  folder = data_folder.checkpoint_path(path)
  config = bert_checkpoint.read_config(folder / 'config.json', **changes)
  if config.vocab_size != vocab_size:
    raise ValueError(
      f'{folder}: a vocabulary of {config.vocab_size:,}, but the data were '
      f'tokenized with {vocab_size:,} wordpieces.'
    )
  return config


def realm_config(config: RunConfig, vocab_size: int) -> config_lib.RealmConfig:
  """Return the retriever and encoder that a config names."""
  return config_lib.RealmConfig(
    embedder=bert_config(config.embedder, vocab_size),
    encoder=bert_config(config.encoder, vocab_size),
    **vars(config.model),
  )
