# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""An embedder of tiny_bert's sizes, every number drawn, with a tokenizer of words."""

import pathlib

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from tests.retrieval.nn import tiny_bert

_SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]')


def save(path: pathlib.Path, words) -> pathlib.Path:
  """Writes a folder that `embedders.Embedder.load` reads; other words are unknown."""
  tensors = tiny_bert.make_tensors()
  encoder = {k: x for k, x in tensors.items() if not k.startswith('cls.')}
  tiny_bert.save(path, encoder)
  pieces = [*_SPECIAL, *dict.fromkeys(words)][: tiny_bert.V]
  vocabulary = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(
    models.WordPiece(vocabulary, unk_token='[UNK]')
  )
  tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  ends = [(name, vocabulary[name]) for name in ('[CLS]', '[SEP]')]
  tokenizer.post_processor = processors.TemplateProcessing(
    single='[CLS] $A [SEP]', special_tokens=ends
  )
  tokenizer.save(str(path / 'tokenizer.json'))
  return path
