# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of late-interaction models.

colbert-ai (Santhanam et al. 2021) has BERT's config.json, weights with linear.weight, a
tokenizer, and artifact.metadata. `colbert_modules` has the layouts of PyLate and
sentence-transformers.
"""

from collections.abc import Callable
import dataclasses
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np

from retrieval import settings, tokenization
from retrieval.formats import weights
from retrieval.nn import (
  bert,
  bert_checkpoint,
  colbert_modules,
  colbert_rows,
  sentence_folder,
)
from retrieval.store import hub, manifests

_ARTIFACT = 'artifact.metadata'  # of colbert-ai
_FIELDS = {  # its fields -> ours
  'dim': 'vector_size',
  'query_maxlen': 'query_length',
  'doc_maxlen': 'passage_length',
  'query_token_id': 'query_marker',
  'doc_token_id': 'passage_marker',
  'attend_to_mask_tokens': 'attend_to_masks',
}


class Model(NamedTuple):
  """Arguments of `colbert.ColbertEncoder`."""

  config: colbert_rows.ColbertConfig
  encoder: bert.BertConfig
  params: dict[str, Any]  # bert, and those of `sentence_layers.read`
  tokenizer: colbert_rows.Tokenizer


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
  source, fields, encoder, params, layers, tokenizer = reader(folder)
  params.pop('pooler', None)
  return Model(
    settings.build(colbert_rows.ColbertConfig, fields, str(source)),
    dataclasses.replace(encoder, pooler=False),
    {'bert': params, **layers},
    tokenizer,
  )


def _reader(folder: pathlib.Path) -> Callable[[pathlib.Path], tuple] | None:
  if (folder / _ARTIFACT).is_file():
    return _colbert_ai
  return colbert_modules.reader(folder)


def _colbert_ai(folder: pathlib.Path) -> tuple:
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
  fields |= colbert_rows.renamed(file, stated, _FIELDS)
  if not stated.get('mask_punctuation', True):
    fields['skip_words'] = ()
  if fields['vector_size'] != len(linear):
    raise ValueError(
      f'{file}: dim {fields["vector_size"]}; linear.weight has {len(linear)}.'
    )
  kernel = np.ascontiguousarray(linear.T, np.float32)
  tokenizer = tokenization.WordPieceTokenizer(folder)
  return (
    file,
    fields,
    encoder,
    params,
    {'dense_0': {'kernel': kernel}},
    tokenizer,
  )
