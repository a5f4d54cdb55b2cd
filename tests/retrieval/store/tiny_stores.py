# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents of a few words, as token and chunk stores."""

from collections.abc import Sequence
import hashlib
import pathlib
import types

import numpy as np

from retrieval import tokenization
from retrieval.store import shards
from retrieval.text import chunks as chunks_lib, tokens as tokens_lib
from tests.retrieval.text import json_corpus

M = 8
WORDS = ('river', 'queen', 'tensor', 'apple', 'Ünder', '日本', 'moon', 'x')


def make(
  root: pathlib.Path,
  rng: np.random.Generator,
  *,
  num_documents: int = 40,
  words: Sequence[str] = WORDS,
  max_words: int = 60,
  num_pieces: int = 290,
  chunk_length: int = M,
  metadata: str = '',
) -> types.SimpleNamespace:
  """Writes the stores of every split under `root` and opens them.

  With metadata='year' document i is of the year 2000 + i.
  """
  documents = [
    {
      'id': f'd{i}',
      'title': f'Title {i}',
      'text': ' '.join(rng.choice(words, rng.integers(1, max_words))),
    }
    | ({'year': 2000 + i} if metadata else {})
    for i in range(num_documents)
  ]
  corpus = json_corpus.write(root, documents, metadata=metadata)
  texts = [document['text'] for document in documents]
  tokenization.train_sentencepiece(texts, root / 'tokenizer/model', num_pieces)
  tokens = tokens_lib.build_token_store(
    root / 'tokens', corpus, root / 'tokenizer', documents_per_shard=7
  )
  chunks = {
    split: chunks_lib.build_chunk_store(
      root / f'chunks-{split}',
      tokens,
      chunk_length=chunk_length,
      split=split,
      valid_fraction=0.08,
      test_fraction=0.22,
    )
    for split in tokens_lib.SPLITS
  }
  return types.SimpleNamespace(
    root=root,
    documents=documents,
    corpus=corpus,
    tokens=tokens,
    chunks=chunks,
    tokenizer=tokenization.load_tokenizer(root / 'tokenizer'),
  )


def write_vectors(path: pathlib.Path, rows: np.ndarray, num_shards: int = 3):
  """Write a store of vectors and return it."""
  fields = {'sum': float(rows.sum(dtype=np.float64))}
  writer = shards.StoreWriter(path, 'vectors', fields)
  for i, part in enumerate(np.array_split(rows, num_shards)):
    shards.write_shard(writer.folder, i, {'vectors': part})
  return writer.publish(num_shards)


def flip(file: pathlib.Path, at: int = -1) -> None:
  """Change one bit of a file."""
  data = bytearray(file.read_bytes())
  data[at] ^= 1
  file.write_bytes(data)


def file_hashes(path: pathlib.Path) -> dict[str, str]:
  """Name -> SHA-256 of every file of a folder and of folders in it."""
  return {
    file.relative_to(path).as_posix(): hashlib.sha256(
      file.read_bytes()
    ).hexdigest()
    for file in path.rglob('*')
    if file.is_file()
  }


def chunk_starts(chunks) -> np.ndarray:
  """Token offset of each chunk in its document."""
  ids = np.arange(chunks.num_chunks)
  documents = chunks.documents(ids)
  return (ids - np.searchsorted(documents, documents)) * chunks.chunk_length
