# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion of the Hugging Face port's config.json to our configs and back."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

from realm_jax.checkpoints import names
from realm_jax.nn import config as config_lib, open_qa
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
  if fields.get('model_type') != 'realm':
    kind = fields.get('model_type')
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


def to_fields(
  hf_class: str,
  config: config_lib.RealmConfig,
  reader: open_qa.OpenQaConfig | None = None,
  num_blocks: int = 0,
) -> dict[str, Any]:
  """Make the config.json of an exported checkpoint: all fields of the port.

  Raises:
    ValueError: for a model that the port cannot compute.
  """
  _check(hf_class, config, reader)
  is_embedder = hf_class in ('RealmEmbedder', 'RealmScorer')
  part = config.embedder if is_embedder else config.encoder
  back = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
  fields = {
    **DEFAULTS,
    **{theirs: getattr(part, ours) for ours, theirs in _BERT.items()},
    'hidden_act': back[part.activation],
    'retriever_proj_size': config.projection_size,
    'num_block_records': num_blocks,
    'architectures': [hf_class],
    'model_type': 'realm',
    'pad_token_id': 0,
    'torch_dtype': 'float32',
  }
  if reader is not None:
    fields |= {
      'span_hidden_size': reader.span_hidden_size,
      'max_span_width': reader.max_span_width,
      'reader_layer_norm_eps': reader.span_norm_eps,
    }
  return fields


def _check(
  hf_class: str,
  config: config_lib.RealmConfig,
  reader: open_qa.OpenQaConfig | None = None,
) -> None:
  """Refuse settings for which the port has no field."""
  settings: dict[str, tuple[Any, Any]] = {}  # setting -> there is, expected
  if hf_class not in ('RealmKnowledgeAugEncoder', 'RealmReader'):
    settings = {
      'pooling': (config.pooling, 'pooler'),
      'projection_norm': (config.projection_norm, True),
      'projection_norm_eps': (
        config.projection_norm_eps,
        config.embedder.layer_norm_eps,
      ),
      'projection_size': (bool(config.projection_size), True),
    }
  for name in ('null_answer', 'coverage_weight') if reader else ():
    settings[f'reader.{name}'] = bool(getattr(reader, name)), False
  if hf_class == 'RealmForOpenQA':
    parts = config.encoder, config.embedder
    for name in (*_BERT, 'activation'):
      settings[f'encoder.{name}'] = tuple(getattr(part, name) for part in parts)
  problems = [
    f'{name} is {actual!r}, expected {value!r}'
    for name, (actual, value) in settings.items()
    if actual != value
  ]
  if problems:
    raise ValueError(f'{hf_class} cannot hold it: {"; ".join(problems)}.')
