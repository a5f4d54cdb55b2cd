# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A small ColBERT in colbert-ai's layout, every number drawn."""

import json
import pathlib

import numpy as np

from tests.retrieval.nn import tiny_bert

WORDS = '[PAD] [UNK] [CLS] [SEP] [MASK] [unused0] [unused1] , red blue green'


def write(
  folder: pathlib.Path, words: str = WORDS, d: int = 6, length: int = 10, **said
) -> dict[str, np.ndarray]:
  """Write a folder and return its tensors; `said` is of artifact.metadata."""
  rows = max(len(words.split()), tiny_bert.V)
  tensors = tiny_bert.make_tensors(v=rows, length=length)
  tensors = {k: x for k, x in tensors.items() if k.startswith('bert.')}
  linear = np.random.default_rng(1).standard_normal((d, tiny_bert.D))
  tensors['linear.weight'] = linear.astype(np.float32)
  sizes = {'vocab_size': rows, 'max_position_embeddings': length}
  tiny_bert.save(folder, tensors, architectures=['HF_ColBERT'], **sizes)
  (folder / 'vocab.txt').write_text(words.replace(' ', '\n') + '\n')
  said = {'dim': d, 'query_maxlen': 8, 'doc_maxlen': 9} | said
  (folder / 'artifact.metadata').write_text(json.dumps(said))
  return tensors
