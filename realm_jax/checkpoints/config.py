# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion of the Hugging Face port's config.json to our configs."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

from realm_jax.checkpoints import names
from retrieval.nn import bert, bert_checkpoint
from retrieval.store import manifests

# Defaults of the port, 4.40.2, which its files omit.
DEFAULTS: Mapping[str, Any] = {
  'vocab_size': 30522,
  'hidden_size': 768,
  'retriever_proj_size': 128,
  'num_hidden_layers': 12,
  'num_attention_heads': 12,
  'num_candidates': 8,
  'intermediate_size': 3072,
  'hidden_act': 'gelu_new',
  'hidden_dropout_prob': 0.1,
  'attention_probs_dropout_prob': 0.1,
  'max_position_embeddings': 512,
  'type_vocab_size': 2,
  'initializer_range': 0.02,
  'layer_norm_eps': 1e-12,
  'span_hidden_size': 256,
  'max_span_width': 10,
  'reader_layer_norm_eps': 1e-3,
  'reader_beam_size': 5,
  'reader_seq_len': 320,
  'num_block_records': 13353718,
  'searcher_beam_size': 5000,
}
_BERT = bert_checkpoint.FIELDS | bert_checkpoint.OPTIONAL_FIELDS
_ACTIVATIONS = bert_checkpoint.ACTIVATIONS


def read(path: str | os.PathLike) -> dict[str, Any]:
  """Read a config.json and add the port's defaults.

  Raises:
    ValueError: for another model's file, and for a field of another type or
      beyond its limits.
  """
  path = pathlib.Path(path)
  fields = manifests.read_object(path)
  if (kind := fields.get('model_type')) != 'realm':
    raise ValueError(f"{path}: model_type {kind!r}; expected 'realm'.")
  fields = {**DEFAULTS, **fields}
  for name, default in DEFAULTS.items():
    value, expected = fields[name], type(default)
    if type(value) is not expected and (type(value), expected) != (int, float):
      raise ValueError(
        f'{path}: field {name!r}: expected {expected.__name__}, found '
        f'{value!r}.'
      )
  try:
    bert_config(fields)
  except (ValueError, OverflowError) as e:
    raise ValueError(f'{path}: {e}') from None
  return fields


def bert_config(fields: Mapping[str, Any]) -> bert.BertConfig:
  """Sizes of each BERT of a checkpoint."""
  values = {
    # JSON may hold a rate as a whole number.
    ours: type(DEFAULTS[theirs])(fields[theirs])
    for ours, theirs in _BERT.items()
  }
  activation = fields['hidden_act']
  return bert.BertConfig(
    activation=_ACTIVATIONS.get(activation, activation), **values
  )


def sizes(fields: Mapping[str, Any]) -> names.Sizes:
  """Sizes that determine the shapes of a checkpoint."""
  return names.Sizes(
    bert=bert_config(fields),
    projection_size=fields['retriever_proj_size'],
    span_hidden_size=fields['span_hidden_size'],
    num_blocks=fields['num_block_records'],
  )
