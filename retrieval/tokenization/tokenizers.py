# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers behind one protocol, with byte offsets and a fingerprint.

WordPiece is BERT's. SentencePiece is trained here and is lossless: the text of a
token is exactly its bytes, so decode(encode(text)) == text for every text. Byte
pairs are those of public decoders.
"""

import os

from retrieval.tokenization import base
from retrieval.tokenization import byte_pairs
from retrieval.tokenization import sentencepiece
from retrieval.tokenization import training
from retrieval.tokenization import wordpiece

Encoding = base.Encoding
Tokenizer = base.Tokenizer
BytePairTokenizer = byte_pairs.BytePairTokenizer
WordPieceTokenizer = wordpiece.WordPieceTokenizer
SentencePieceTokenizer = sentencepiece.SentencePieceTokenizer
train_sentencepiece = training.train_sentencepiece


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
  """Loads whichever tokenizer stands at `path`.

  Args:
    path: a SentencePiece model, vocab.txt, tokenizer.json, or a folder with one
      of these.

  Returns:
    The tokenizer.

  Raises:
    FileNotFoundError: when there is none.
    ValueError: when it is damaged.
  """
  found = base.find(path, (*sentencepiece.FILES, *wordpiece.FILES))
  if found.suffix == '.json' and byte_pairs.is_byte_pairs(found):
    return BytePairTokenizer(found)
  if found.suffix in ('.json', '.txt'):
    return WordPieceTokenizer(found)
  return SentencePieceTokenizer(found)
