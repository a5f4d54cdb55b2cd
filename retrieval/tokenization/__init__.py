# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers behind one protocol, with byte offsets and a fingerprint.

WordPiece is BERT's. SentencePiece is trained here and is lossless: the text of
a token is exactly its bytes, so decode(encode(text)) == text for every text.
Byte pairs are those of public decoders. FileNotFoundError names a missing file,
ValueError a damaged one.
"""

import os

from retrieval import lazy
from retrieval.tokenization.base import (
  Encoding as Encoding,
  Tokenizer as Tokenizer,
  byte_offsets as byte_offsets,
  find,
)

# In a folder; the first that is there is its tokenizer.
FILES = ('model', 'tokenizer.json', 'vocab.txt')
# names that load on first use
_PLACES = {
  'BytePairTokenizer': '.byte_pairs',
  'SentencePieceTokenizer': '.sentencepiece',
  'WordPieceTokenizer': '.wordpiece',
  'train_sentencepiece': '.sentencepiece',
}
__getattr__, __dir__ = lazy.attach(__name__, _PLACES)


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
  """Load a tokenizer of any kind.

  Args:
    path: a SentencePiece model, vocab.txt, tokenizer.json, or a folder with one
      of these.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: when it is damaged.
  """
  file = find(path, FILES)
  if file.suffix == '.json':
    from retrieval.tokenization import byte_pairs

    if byte_pairs.read_spec(file):
      return byte_pairs.BytePairTokenizer(file)
  if file.suffix in ('.json', '.txt'):
    from retrieval.tokenization import wordpiece

    return wordpiece.WordPieceTokenizer(file)
  from retrieval.tokenization import sentencepiece

  return sentencepiece.SentencePieceTokenizer(file)
