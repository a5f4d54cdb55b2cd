# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts, questions and blocks that both sides of the benchmark `qa` read.

Texts are windows of a real corpus and fill the reader's rows. Three of four
hold the answer.
"""

import json
import os
import pathlib
import shutil

import numpy as np

from retrieval.nn import embedders
from retrieval.store import store
from retrieval.text import (
  blocks as blocks_lib,
  corpus as corpus_lib,
  tokens as tokens_lib,
)

ANSWER = 'Ada Lovelace'
QUESTIONS = (
  'who wrote the first program for a machine',
  'which mathematician described how an engine computes numbers',
  'what is the name of the countess who translated an essay on engines',
  'who published the notes on the analytical engine in the year 1843',
  'who saw that a machine could work on more than numbers',
  'after whom was a language of the department of defense named',
  'which daughter of a poet studied mathematics with de morgan',
  'who is celebrated on the second tuesday of october every year',
)
_WORDS_A_PIECE = 0.9  # at most; English has fewer words than wordpieces
_HOLDS_ANSWER = 0.75
_BLOCKS = 'blocks'


def write_texts(
  path: pathlib.Path, corpus: corpus_lib.Corpus, count: int, num_words: int
) -> None:
  """Write windows of a corpus as JSON lines, three of four with the answer."""
  words = [word for document in corpus for word in document.text.split()]
  rng = np.random.default_rng(0)
  starts = rng.integers(0, max(len(words) - num_words, 1), count)
  holds = rng.random(count) < _HOLDS_ANSWER
  places = rng.integers(0, num_words // 2, count)
  with store.open_atomically(path, 'w') as f:
    for i, (start, hold, place) in enumerate(
      zip(starts.tolist(), holds.tolist(), places.tolist(), strict=True)
    ):
      window = words[start : start + num_words]
      if hold:
        window.insert(place, ANSWER)
      row = {'id': str(i), 'title': '', 'text': ' '.join(window)}
      f.write(json.dumps(row) + '\n')


def prepare(
  folder: str | os.PathLike,
  count: int,
  row_length: int,
  corpus: corpus_lib.CorpusConfig,
) -> pathlib.Path:
  """Prepare the data of both sides, unless the folder holds them.

  Returns:
    A folder with texts.jsonl, vocab.txt and the stores.
  """
  root = pathlib.Path(folder) / f'{count}x{row_length}'
  root.mkdir(parents=True, exist_ok=True)
  texts, vocab = root / 'texts.jsonl', root / 'vocab.txt'
  if not vocab.exists():
    shutil.copyfile(embedders.find_minilm() / 'vocab.txt', vocab)
  if not texts.exists():
    num_words = int(row_length * _WORDS_A_PIECE)
    write_texts(texts, corpus_lib.Corpus(corpus), count, num_words)
  open_blocks(root)
  return root


def open_blocks(root: pathlib.Path) -> blocks_lib.BlockStore:
  """Open the texts as blocks, one a text; build the stores at first use."""
  if (root / _BLOCKS).exists():
    return blocks_lib.BlockStore(root / _BLOCKS)
  vocab, cores = root / 'vocab.txt', len(os.sched_getaffinity(0))
  config = corpus_lib.CorpusConfig('jsonl', str(root / 'texts.jsonl'))
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    corpus_lib.Corpus(config),
    vocab,
    with_title=False,
    with_text=True,
    num_processes=cores,
  )
  return blocks_lib.build_block_store(
    root / _BLOCKS,
    tokens,
    vocab,
    max_length=1 << 14,
    whole_documents=True,
    num_processes=cores,
  )
