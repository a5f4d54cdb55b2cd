# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents of short sentences, as a token store with texts and as blocks."""

from collections.abc import Sequence
import pathlib
import types

import numpy as np

from retrieval import tokenization
from retrieval.text import blocks as blocks_lib, tokens as tokens_lib
from tests.retrieval.text import json_corpus

WORDS = tuple('The mill river Paris Rome crown 1066 1999 stood was in'.split())
SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


def write_vocabulary(folder: pathlib.Path) -> pathlib.Path:
  """Words, single letters and their continuations."""
  folder.mkdir(parents=True, exist_ok=True)
  letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
  words = sorted({word.lower() for word in WORDS} - set(letters))
  pieces = [*SPECIALS, *words, *letters, *(f'##{x}' for x in letters)]
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  tokenization.WordPieceTokenizer(folder / 'vocab.txt').save(folder)
  return folder


def documents(count: int, rng: np.random.Generator) -> list[dict[str, str]]:
  """Documents of one to six sentences, some on lines of their own."""
  found = []
  for i in range(count):
    sentences = [
      ' '.join(rng.choice(WORDS, rng.integers(4, 9))) + '.'
      for _ in range(rng.integers(1, 7))
    ]
    breaks = rng.choice([' ', '\n', '\n\n'], len(sentences))
    text = ''.join(s + b for s, b in zip(sentences, breaks, strict=True))
    found.append({'id': f'd{i}', 'title': f'Mill {i}', 'text': text.strip()})
  return found


def make(
  root: pathlib.Path,
  rng: np.random.Generator,
  *,
  num_documents: int = 30,
  max_length: int = 32,
  given: Sequence[dict[str, str]] | None = None,
  metadata: str = '',
  **settings,
) -> types.SimpleNamespace:
  """Writes vocabulary, tokens and blocks under `root` and opens them.

  With metadata='year' document i is of the year 2000 + i.
  """
  rows = documents(num_documents, rng) if given is None else list(given)
  if metadata:
    rows = [row | {'year': 2000 + i} for i, row in enumerate(rows)]
  corpus = json_corpus.write(root, rows, metadata=metadata)
  path = write_vocabulary(root / 'tokenizer')
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    corpus,
    path,
    with_title=False,
    with_text=True,
    documents_per_shard=7,
  )
  blocks = blocks_lib.build_block_store(
    root / 'blocks', tokens, path, max_length=max_length, **settings
  )
  tokenizer = tokenization.WordPieceTokenizer(path)
  names = ('cls_id', 'sep_id', 'mask_id', 'pad_id')
  return types.SimpleNamespace(
    root=root,
    documents=rows,
    tokens=tokens,
    blocks=blocks,
    tokenizer=tokenizer,
    special_ids={name: getattr(tokenizer, name) for name in names},
    tokenizer_path=path,
  )
