# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Models and row lengths that the sections of a config name."""

import dataclasses
from typing import Literal

import ml_collections

from realm_jax.data import folder as data_folder, reader_rows
from realm_jax.nn import config as config_lib, open_qa
from realm_jax.objectives import claims
from retrieval import settings
from retrieval.nn import bert, bert_checkpoint
from retrieval.questions import claims as claims_lib

Config = ml_collections.ConfigDict


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertSection:
  """One BERT: its checkpoint, and the fields that differ from the checkpoint's.

  Fields that are 0, '' or -1 are as in the checkpoint; without one, BERT base's.
  """

  # folder in the Hugging Face layout; 'minilm' for the packaged
  # all-MiniLM-L6-v2; '' starts at random
  checkpoint: str
  d_model: Literal[0] | bert.Width = 0
  d_ff: Literal[0] | bert.Width = 0
  num_heads: Literal[0] | bert.Width = 0
  num_layers: bert.Layers = 0
  max_length: Literal[0] | bert.Length = 0
  activation: Literal['', bert.Activation] = ''
  layer_norm_eps: Literal[-1] | bert.Epsilon = -1.0
  dropout_rate: Literal[-1] | settings.Rate = -1.0
  attention_dropout_rate: Literal[-1] | settings.Rate = -1.0
  initializer_range: Literal[-1] | settings.NotNegative = -1.0
  remat: bool = False  # recompute each layer in the backward pass
  dtype: settings.Dtype = 'float32'  # compute
  param_dtype: settings.Dtype = 'float32'  # parameters


def bert_config(section: Config, vocab_size: int) -> bert.BertConfig:
  """Return one BERT: its checkpoint's sizes, overridden by the fields set.

  Raises:
    ValueError: when the checkpoint has another vocabulary.
  """
  fields = section.to_dict()
  path = fields.pop('checkpoint')
  given = {name: v for name, v in fields.items() if not _is_unset(v)}
  if not path:
    return bert.BertConfig(vocab_size=vocab_size, **given)
  folder = data_folder.checkpoint_path(path)
  config = bert_checkpoint.read_config(folder / 'config.json', **given)
  if config.vocab_size != vocab_size:
    raise ValueError(
      f'{folder}: a vocabulary of {config.vocab_size:,}, but the data were '
      f'tokenized with {vocab_size:,} wordpieces.'
    )
  return config


def _is_unset(value: int | float | str) -> bool:
  """Whether a field is left to the checkpoint; a rate of 0.0 is a choice."""
  return value < 0 if isinstance(value, float) else not value


def realm_config(config: Config, vocab_size: int) -> config_lib.RealmConfig:
  """Return the retriever and encoder that a config names."""
  return config_lib.RealmConfig(
    embedder=bert_config(config.embedder, vocab_size),
    encoder=bert_config(config.encoder, vocab_size),
    **config.model,
  )


def reader_config(
  config: Config, vocab_size: int
) -> open_qa.OpenQaConfig | claims.ClaimsConfig:
  """Return retriever and reader: of spans, or of classes for task 'claims'."""
  realm = realm_config(config, vocab_size)
  if config.task == 'claims':
    return claims.ClaimsConfig(
      realm=realm, num_classes=len(claim_labels(config))
    )
  return open_qa.OpenQaConfig(realm=realm, **config.reader)


def claim_labels(config: Config) -> tuple[str, ...]:
  """Return the labels of the data set that config.claims names.

  Raises:
    ValueError: for no set, or sets of several data sets.
  """
  settings = config.claims
  if not settings.train:
    raise ValueError(
      "claims.train is empty: expected sets such as ('fever:train=train.jsonl',)."
    )
  names = set(map(claims_lib.dataset_of, (*settings.train, *settings.dev)))
  if len(names) > 1:
    raise ValueError(
      f'claims.train and claims.dev are of {sorted(names)}: expected one data '
      'set, whose labels are the classes.'
    )
  return claims_lib.check_labels(names.pop(), settings.labels)


def reader_layout(
  config: Config, data: data_folder.DataFolder
) -> reader_rows.ReaderLayout:
  """Return the lengths of the reader's rows and the tokenizer's specials."""
  tokenizer = data.tokenizer
  spans = {}
  if 'reader' in config:  # a classifier of claims has no spans
    spans['max_span_width'] = config.reader.max_span_width
  return reader_rows.ReaderLayout(
    row_length=config.lookup.row_length,
    question_length=config.lookup.question_length,
    **spans,
    cls_id=tokenizer.cls_id,
    sep_id=tokenizer.sep_id,
    pad_id=tokenizer.pad_id,
  )
