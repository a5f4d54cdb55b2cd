# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A data folder of 30 short documents, in chunks of 4 tokens."""

import json
import pathlib

import numpy as np

from retrieval import chunks as chunks_lib
from retrieval import corpus as corpus_lib
from retrieval import neighbors as neighbors_lib
from retrieval import store
from retrieval import tokenizers
from retrieval import tokens as tokens_lib
from retro_jax import pipeline

M, R, K = 4, 7, 3
WORDS = tuple(
  'river queen tensor apple Ünder 日本 moon x gardens walked seven lanterns'
  ' beneath crooked bridge while violins hummed quiet jokes'.split()
)


def make(root: pathlib.Path, num_documents: int = 30) -> pathlib.Path:
  """Writes all stores but vectors and index; neighbors are drawn at random."""
  rng = np.random.default_rng(0)
  documents = [
    {
      'id': f'd{i}',
      'title': f'Title {i}',
      'text': ' '.join(rng.choice(WORDS, rng.integers(1, 30))),
    }
    for i in range(num_documents)
  ]
  lines = '\n'.join(json.dumps(document) for document in documents)
  (root / 'documents.jsonl').write_text(lines)
  corpus = corpus_lib.Corpus(
    corpus_lib.CorpusConfig(kind='jsonl', path=str(root / 'documents.jsonl'))
  )
  texts = [document['text'] for document in documents]
  tokenizers.train_sentencepiece(texts, root / 'tokenizer/model', 300)
  tokens = tokens_lib.build_token_store(
    root / 'tokens', corpus, root / 'tokenizer', documents_per_shard=7
  )
  chunks = {
    split: chunks_lib.build_chunk_store(
      root / f'chunks-{split}',
      tokens,
      chunk_length=M,
      split=split,
      valid_fraction=0.3,
    )
    for split in ('train', 'valid')
  }
  for split in chunks:
    write_neighbors(root, split, chunks[split], chunks['train'], rng)
  return root


def write_neighbors(root, split, queries, datastore, rng):
  """K random chunks of other documents for each; every fifth is missing."""
  n = queries.num_chunks
  ids = rng.integers(0, datastore.num_chunks, (n, K))
  own = queries.document_hashes(np.arange(n))[:, None]
  missing = datastore.document_hashes(ids) == own
  missing |= rng.random(ids.shape) < 0.2
  ids = np.where(missing, -1, ids)
  fields = {
    'queries': queries.fingerprint,
    'vectors': 'none',
    'datastore': datastore.fingerprint,
    'index': 'none',
    'k': K,
  }
  writer = store.StoreWriter(
    root / f'neighbors-{split}', neighbors_lib.KIND, fields
  )
  scores = np.where(missing, -np.inf, -ids).astype(np.float32)
  writer.write(0, {'ids': ids.astype(np.int64), 'scores': scores})
  writer.publish(1)


def reader(root, split='train', k=2, **settings) -> pipeline.ChunkReader:
  return pipeline.ChunkReader(
    chunks=root / f'chunks-{split}',
    neighbors=root / f'neighbors-{split}',
    datastore=root / 'chunks-train',
    num_neighbors=k,
    neighbor_length=R,
    **settings,
  )
