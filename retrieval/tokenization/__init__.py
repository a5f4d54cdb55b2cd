# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers behind one protocol, with byte offsets and a fingerprint.

WordPiece is BERT's. SentencePiece is trained here and is lossless: the text of
a token is exactly its bytes, so decode(encode(text)) == text for every text.
Byte pairs are those of public decoders.
"""

import os

from retrieval.tokenization import sentencepiece, wordpiece
from retrieval.tokenization.base import (
  Encoding as Encoding,
  Tokenizer as Tokenizer,
  byte_offsets as byte_offsets,
  find,
)
from retrieval.tokenization.byte_pairs import (
  BytePairTokenizer as BytePairTokenizer,
  is_byte_pairs,
)
from retrieval.tokenization.sentencepiece import (
  SentencePieceTokenizer as SentencePieceTokenizer,
)
from retrieval.tokenization.training import (
  train_sentencepiece as train_sentencepiece,
)
from retrieval.tokenization.wordpiece import (
  WordPieceTokenizer as WordPieceTokenizer,
)

# In a folder; the first that is there is its tokenizer.
FILES = (*sentencepiece.FILES, *wordpiece.FILES)


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
  """Load a tokenizer of any kind.

  Args:
    path: a SentencePiece model, vocab.txt, tokenizer.json, or a folder with one
      of these.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: when it is damaged.
  """
  found = find(path, FILES)
  if found.suffix == '.json' and is_byte_pairs(found):
    return BytePairTokenizer(found)
  if found.suffix in ('.json', '.txt'):
    return WordPieceTokenizer(found)
  return SentencePieceTokenizer(found)
