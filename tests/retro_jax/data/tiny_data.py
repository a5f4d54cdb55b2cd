# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A data folder of 30 short documents, in chunks of 4 tokens."""

import pathlib

import numpy as np

from retrieval.index import neighbor_store
from retrieval.store import shards
from retro_jax.data import pipeline
from tests.retrieval.store import tiny_stores

M, R, K = 4, 7, 3
WORDS = tuple(
  'river queen tensor apple Ünder 日本 moon x gardens walked seven lanterns'
  ' beneath crooked bridge while violins hummed quiet jokes'.split()
)


def make(
  root: pathlib.Path, num_documents: int = 30, **settings
) -> pathlib.Path:
  """Writes all stores but vectors and index; neighbors are drawn at random."""
  rng = np.random.default_rng(0)
  chunks = tiny_stores.make(
    root,
    rng,
    num_documents=num_documents,
    words=WORDS,
    max_words=30,
    num_pieces=300,
    chunk_length=M,
    **settings,
  ).chunks
  for split in ('train', 'valid', 'test'):
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
  writer = shards.StoreWriter(
    root / f'neighbors-{split}', neighbor_store.KIND, fields
  )
  scores = np.where(missing, -np.inf, -ids).astype(np.float32)
  arrays = {'ids': ids.astype(np.int64), 'scores': scores}
  shards.write_shard(writer.folder, 0, arrays)
  writer.publish(1, {'unit': 'squared L2 distance'})


def reader(root, split='train', k=2, **settings) -> pipeline.ChunkReader:
  return pipeline.ChunkReader(
    chunks=root / f'chunks-{split}',
    neighbors=root / f'neighbors-{split}',
    datastore=root / 'chunks-train',
    num_neighbors=k,
    neighbor_length=R,
    **settings,
  )
