# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of late-interaction models: colbert-ai, PyLate, sentence-transformers.

colbert-ai (Santhanam et al. 2021) has BERT's config.json, weights with linear.weight, a
tokenizer, and artifact.metadata. Of the others modules.json lists an encoder and Dense
modules, whose vectors are scaled to length 1. PyLate states markers, lengths and
skipped words in config_sentence_transformers.json, sentence-transformers (its
MultiVectorEncoder) in the modules' files, with markers as prompts. A module, field or
value that is not known is refused.
"""

from collections.abc import Callable, Collection, Mapping
import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

from retrieval import settings, tokenization
from retrieval.formats import weights
from retrieval.nn import (
  bert,
  bert_checkpoint,
  colbert_rows,
  embedders,
  sentence_folder,
  sentence_layers,
)
from retrieval.store import hub, manifests

_ARTIFACT = 'artifact.metadata'
_MASK, _NORMALIZE = 'MultiVectorMask', sentence_layers.NORMALIZE
# Fields of files -> ours
_COLBERT_AI = {
  'query_maxlen': 'query_length',
  'doc_maxlen': 'passage_length',
  'query_token_id': 'query_marker',
  'doc_token_id': 'passage_marker',
  'attend_to_mask_tokens': 'attend_to_masks',
}
_PYLATE = {
  'query_prefix': 'query_marker',
  'document_prefix': 'passage_marker',
  'query_length': 'query_length',
  'document_length': 'passage_length',
  'attend_to_expansion_tokens': 'attend_to_masks',
  'skiplist_words': 'skip_words',
}
_PYLATE_DEFAULTS = {
  'strip': True,
  'query_marker': '[Q] ',
  'passage_marker': '[D] ',
  'passage_length': 180,
  'attend_to_masks': False,
  'skip_words': colbert_rows.PUNCTUATION,
}
_LENGTHS = {'query_length': 'query_length', 'document_length': 'passage_length'}
_EXPANSION = {'length': 'filled_length', 'attend': 'attend_to_masks'}
_SENTENCE = 'model_type', '__version__', 'prompts', 'default_prompt_name'
_TRANSFORMER = 'max_seq_length', 'do_lower_case', 'unpad_inputs'
_TRANSFORMER += (*_LENGTHS, 'query_expansion')
# Fields -> supported values
_OF_TRANSFORMER = {
  'transformer_task': ('feature-extraction',),
  'modality_config': (
    {'text': {'method': 'forward', 'method_output_name': 'last_hidden_state'}},
  ),
  'module_output_name': ('token_embeddings',),
  'processing_kwargs': ({}, None),
}
_OF_TOKENS = {
  'module_input_name': ('token_embeddings',),
  'module_output_name': ('token_embeddings', None),
}
_OF_MASK = {
  'skiplist_tasks': (['document'], 'document', None),
  'keep_only_token_ids': (None,),
}


# Arguments of `colbert.ColbertEncoder`
Model = tuple[
  colbert_rows.ColbertConfig, bert.BertConfig, dict, colbert_rows.Tokenizer
]
_renamed = functools.partial(settings.renamed, colbert_rows.ColbertConfig)


def is_model(path: str | os.PathLike) -> bool:
  """Whether a folder, or a name on the Hub, holds a late-interaction model."""
  return _reader(hub.local(path)) is not None


def read(path: str | os.PathLike) -> Model:
  """Read a folder, or a name on the Hub (`hub.local`); see `colbert.load`."""
  folder = hub.complete(path, (_ARTIFACT, *sentence_folder.FILES))
  reader = _reader(folder)
  if reader is None:
    raise FileNotFoundError(
      f'{folder}: neither {_ARTIFACT} nor the {sentence_folder.PROMPTS} of a '
      'late-interaction model; expected the folder of one.'
    )
  return reader(folder)


def _reader(folder: pathlib.Path) -> Callable[[pathlib.Path], Model] | None:
  if (folder / _ARTIFACT).is_file():
    return _colbert_ai
  file = folder / sentence_folder.PROMPTS
  stated = sentence_folder.read_fields(file, needed=False)
  if stated.get('model_type') == 'MultiVectorEncoder':
    return _sentence_transformers
  # Older versions of PyLate do not state the type.
  is_pylate = stated.get('model_type') == 'ColBERT' or {*_PYLATE} & {*stated}
  return _pylate if is_pylate else None


def _model(file, fields, encoder, params, layers, tokenizer) -> Model:
  """Build the config from fields that `file` states."""
  params.pop('pooler', None)
  config = settings.build(colbert_rows.ColbertConfig, fields, str(file))
  encoder = dataclasses.replace(encoder, pooler=False)
  return config, encoder, {'bert': params, **layers}, tokenizer


def _colbert_ai(folder: pathlib.Path) -> Model:
  file = folder / _ARTIFACT
  stated = manifests.read_object(file)
  bert_checkpoint.check_fields(file, stated, {'similarity': ('cosine',)})
  tensors = dict(weights.read(weights.find(folder)))
  linear = tensors.pop('linear.weight', None)
  encoder = bert_checkpoint.read_config(folder / 'config.json')
  if linear is None or linear.shape[1:] != (encoder.d_model,):
    shape = None if linear is None else linear.shape
    raise ValueError(
      f'{folder}: linear.weight {shape}; expected [vector, {encoder.d_model}].'
    )
  encoder, params, _ = bert_checkpoint.convert(tensors, encoder, str(folder))
  fields = {'attend_to_masks': False, 'vector_size': len(linear)}
  bert_checkpoint.check_fields(file, stated, {'dim': (len(linear), None)})
  fields |= _renamed(file, stated, _COLBERT_AI)
  if not stated.get('mask_punctuation', True):
    fields['skip_words'] = ()
  kernel = np.ascontiguousarray(linear.T, np.float32)
  tokenizer = tokenization.WordPieceTokenizer(folder)
  layers = {'dense_0': {'kernel': kernel}}
  return _model(file, fields, encoder, params, layers, tokenizer)


def _check(
  source: object,
  fields: Mapping[str, Any],
  names: Collection[str],
  supported: Mapping[str, Collection[Any]],
) -> Mapping[str, Any]:
  """Return fields, all of which must be known: `names`, and those of `supported`."""
  unknown = sorted({*fields} - {*names} - {*supported})
  if unknown:
    raise ValueError(
      f'{source}: {unknown[0]} {fields[unknown[0]]!r}; expected no such field.'
    )
  bert_checkpoint.check_fields(str(source), fields, supported)
  return fields


class _Modules:
  """The modules of a folder: an encoder, and others above it."""

  def __init__(self, folder: pathlib.Path, others: Collection[str]):
    """Read the encoder, its tokenizer and its settings."""
    self.folder, self.file = folder, folder / sentence_folder.MODULES
    self.kinds, places = sentence_folder.read_modules(
      self.file, (('Transformer',),), others
    )
    self.root = folder / places[0]
    self.others = list(zip(self.kinds, places, strict=True))[1:]
    self.encoder, self.params, _ = bert_checkpoint.load_mlm(
      self.root, bert_checkpoint.MODELS
    )
    self.lengths = sentence_folder.read_lengths(self.root)
    file = self.root / 'sentence_bert_config.json'
    _check(file, self.lengths, _TRANSFORMER, _OF_TRANSFORMER)
    self.tokenizer = embedders.read_tokenizer(
      self.root, self.lengths, self.encoder.vocab_size
    )

  def special(self, name: str) -> str:
    """Return a special token of the tokenizer, such as mask; [MASK] by default."""
    file = self.root / 'tokenizer_config.json'
    stated = sentence_folder.read_fields(file, needed=False)
    token = stated.get(f'{name}_token')
    token = token.get('content') if isinstance(token, dict) else token
    return token if isinstance(token, str) else f'[{name.upper()}]'

  def read(
    self, source: pathlib.Path, fields: dict[str, Any], mask: str
  ) -> Model:
    """Read the layers, and return the model; `mask` is the token that fills queries."""
    pairs = (x for x in self.others if x[0] != _MASK)
    layers, params = sentence_layers.read(
      self.folder, *zip(*pairs, strict=True)
    )
    if layers[-1] != _NORMALIZE:
      layers = *layers, _NORMALIZE
    width = sentence_layers.width(layers, params, self.encoder.d_model)
    fields |= {'layers': layers, 'vector_size': width}
    file = self.root / 'tokenizer.json'
    tokenizer = colbert_rows.JsonTokenizer(self.tokenizer, mask, str(file))
    return _model(source, fields, self.encoder, self.params, params, tokenizer)


def _pylate(folder: pathlib.Path) -> Model:
  file = folder / sentence_folder.PROMPTS
  names = *_SENTENCE, *_PYLATE, 'similarity_fn_name'
  supported = {
    'do_query_expansion': (True, False, None),
    'default_prompt_name': (None,),
  }
  stated = _check(file, manifests.read_object(file), names, supported)
  modules = _Modules(folder, ('Dense',))
  if len(modules.kinds) < 2:
    raise ValueError(f'{modules.file}: expected a Dense after the Transformer.')
  fields = _PYLATE_DEFAULTS | _renamed(file, stated, _PYLATE)
  if stated.get('do_query_expansion') is False:
    fields['filled_length'] = 0
  words = fields['skip_words']
  if any(modules.tokenizer.token_to_id(x) is None for x in words):
    # PyLate has the unknown token for a word that is unknown.
    fields['skip_words'] = (*words, modules.special('unk'))
  return modules.read(file, fields, modules.special('mask'))


def _sentence_transformers(folder: pathlib.Path) -> Model:
  file = folder / sentence_folder.PROMPTS
  supported = {'similarity_fn_name': ('maxsim', None)}
  stated = _check(file, manifests.read_object(file), _SENTENCE, supported)
  modules = _Modules(folder, ('Dense', _MASK, _NORMALIZE))
  fields = _rows(modules)
  sentence_folder.read_prompts(file, stated)
  for side, name in (('query', 'query'), ('passage', 'document')):
    prompt = (stated.get('prompts') or {}).get(name) or ''
    # An added token that a prompt begins with is inserted as a marker.
    added = modules.tokenizer.get_added_tokens_decoder().values()
    markers = [x.content for x in added if prompt.startswith(x.content)]
    marker = max(markers, key=len, default='')
    fields[f'{side}_marker'] = marker
    fields[f'{side}_prompt'] = prompt[len(marker) :]
  fields['skip_words'] = ()
  words = {'skiplist_words': 'skip_words'}
  for kind, place in modules.others:
    layer = folder / place / 'config.json'
    of_layer = sentence_folder.read_fields(layer, needed=kind == _MASK)
    if kind == _MASK:
      _check(layer, of_layer, words, _OF_MASK)
      fields |= _renamed(layer, of_layer, words)
    else:
      of_layer = {'module_input_name': 'sentence_embedding'} | of_layer
      bert_checkpoint.check_fields(layer, of_layer, _OF_TOKENS)
  layers = [x for x in modules.kinds if x != _MASK]
  masked = _MASK in modules.kinds or not fields['filled_length']
  if layers[-1] != _NORMALIZE or not masked:
    raise ValueError(
      f'{modules.file}: modules {modules.kinds}; expected a Normalize after the last '
      'Dense, and a MultiVectorMask where query_expansion is stated.'
    )
  expansion = modules.lengths.get('query_expansion') or {}
  mask = expansion.get('token') or modules.special('mask')
  return modules.read(file, fields, mask)


def _rows(modules: _Modules) -> dict[str, Any]:
  """Return the lengths of rows, and what fills queries."""
  file, stated = modules.root / 'sentence_bert_config.json', modules.lengths
  limit = modules.encoder.max_length
  limit = sentence_folder.text_length(modules.root, stated, limit)
  fields = {'query_length': limit, 'passage_length': limit}
  fields |= _renamed(file, stated, _LENGTHS)
  expansion = stated.get('query_expansion')
  if expansion is None:
    return fields | {'filled_length': 0}
  source = f'{file}: query_expansion'
  needed = 'strategy', 'length'
  if not isinstance(expansion, dict) or None in map(expansion.get, needed):
    raise ValueError(f'{source} {expansion!r}; expected strategy and length.')
  strategies = {'strategy': ('fixed', 'min')}
  _check(source, expansion, (*_EXPANSION, 'token'), strategies)
  fields['attend_to_masks'] = False
  fields |= _renamed(source, expansion, _EXPANSION)
  length = fields['filled_length']
  if expansion['strategy'] == 'min':
    length = max(length, fields['query_length'])
  return fields | {'query_length': length}
