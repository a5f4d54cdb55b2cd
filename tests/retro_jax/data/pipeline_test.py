# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows against slow loops over documents; streams that resume and split."""

from unittest import mock

import numpy as np
import pytest

from retrieval import searchers, tokenization
from retrieval.index import neighbor_store
from retrieval.nn import embedders
from retrieval.search import retriever as retriever_lib
from retrieval.text import chunks as chunks_lib
from retro_jax.data import datastore as datastore_lib, pipeline
from tests import streams
from tests.retrieval.store import tiny_stores
from tests.retro_jax.data import tiny_data

M, R = tiny_data.M, tiny_data.R
L = 5  # chunks of a row


def _dataset(reader, **settings):
  return pipeline.make_dataset(
    reader,
    **({'sequence_chunks': L, 'batch_size': 4, 'train': True} | settings),
  )


def _slow_rows(root, split, k):
  """All rows of a split, token by token."""
  chunks = chunks_lib.ChunkStore(root / f'chunks-{split}')
  datastore = chunks_lib.ChunkStore(root / 'chunks-train')
  found = neighbor_store.NeighborStore(root / f'neighbors-{split}')
  n = chunks.num_chunks
  documents = chunks.documents(np.arange(n))
  starts = tiny_stores.chunk_starts(chunks)
  value_starts = tiny_stores.chunk_starts(datastore)
  for first in range(0, n, L):
    row = {
      'tokens': np.zeros(L * M, np.int32),
      'targets': np.zeros(L * M, np.int32),
      'loss_mask': np.zeros(L * M, bool),
      'segment_ids': np.zeros(L * M, np.int32),
      'neighbors': np.zeros((L, k, R), np.int32),
      'neighbor_mask': np.zeros((L, k, R), bool),
    }
    segment, before = 0, None
    for c in range(first, min(first + L, n)):
      text = chunks.tokens.document(int(documents[c]))
      segment += documents[c] != before
      before = documents[c]
      for i in range(M):
        t, at = (c - first) * M + i, int(starts[c]) + i
        if at < len(text):
          row['tokens'][t] = text[at]
          row['segment_ids'][t] = segment
        if at + 1 < len(text):
          row['targets'][t] = text[at + 1]
          row['loss_mask'][t] = True
      for j, neighbor in enumerate(found.ids(np.array([c]))[0, :k]):
        if neighbor < 0:
          continue
        other = int(datastore.documents(np.array([neighbor]))[0])
        start = int(value_starts[neighbor])
        value = datastore.tokens.document(other)[start : start + R]
        row['neighbors'][c - first, j, : len(value)] = value
        row['neighbor_mask'][c - first, j, : len(value)] = True
    yield row


@pytest.mark.parametrize('split', ['train', 'valid'])
def test_rows_equal_a_slow_loop(root, split):
  source = pipeline.Sequences(tiny_data.reader(root, split), L)
  want = list(_slow_rows(root, split, 2))
  assert len(source) == len(want) > 3
  for i, row in enumerate(want):
    got = source[i]
    assert got.keys() == row.keys()
    for name in row:
      np.testing.assert_array_equal(got[name], row[name], err_msg=name)
      assert got[name].dtype == row[name].dtype, name


def test_new_text_reads_the_same_part(root):
  reader = tiny_data.reader(root)
  ids, datastore = np.array([[3, -1], [0, 7]]), reader.stores.datastore
  searcher = mock.create_autospec(searchers.Searcher, instance=True)
  searcher.num_vectors, searcher.unit = datastore.num_chunks, 'nothing'
  searcher.search.return_value = ids, -1.0 * ids
  embedder = mock.create_autospec(embedders.Embedder, instance=True)
  embedder.dimension, embedder.fingerprint = 2, ''
  embedder.embed_texts.return_value = np.zeros((2, 2), np.float32)
  dense = retriever_lib.Dense(datastore, searcher, embedder=lambda: embedder)
  for part in chunks_lib.PARTS:
    lookup = datastore_lib.NeighborLookup(
      dense,
      datastore,
      mock.create_autospec(tokenization.Tokenizer, instance=True),
      neighbor_length=R,
      neighbor_part=part,
    )
    found = lookup.retrieve(['a', 'b'], 2)
    tokens, mask = datastore.gather(ids, R, part)
    np.testing.assert_array_equal([x.tokens for x in found], tokens)
    np.testing.assert_array_equal([x.mask for x in found], mask)
  blank = lookup.retrieve(['a', ' '], 2)
  assert [x.ids.tolist() for x in blank] == [[3, -1], [-1, -1]]
  assert blank[1].scores.tolist() == [-np.inf] * 2
  assert not blank[1].mask.any()


def test_oracle_is_the_chunk_and_what_follows_it(root):
  reader = tiny_data.reader(root, 'valid', k=2)
  ids = np.array([[0, 1, 2, -1]])
  row = reader.read(ids, oracle=True)
  tokens, mask = reader.stores.chunks.gather(ids, reader.neighbor_length)
  np.testing.assert_array_equal(row['neighbors'][:, :, 0], tokens)
  np.testing.assert_array_equal(row['neighbor_mask'][:, :, 0], mask)
  m = reader.chunk_length
  np.testing.assert_array_equal(
    row['neighbors'][0, 0, 0, :m], row['tokens'][0, :m]
  )
  assert not row['neighbor_mask'][0, 3].any()


def test_neighbors_of_other_chunks_never_come_from_ones_own_document(root):
  reader = tiny_data.reader(root, k=3)
  n = reader.num_chunks
  ids = np.arange(n)
  by = np.random.default_rng(0).permutation(n)
  row = reader.read(ids, retrieved_by=by)
  found = reader.stores.neighbors.ids(by)
  documents = reader.stores.chunks.documents
  same = documents(np.maximum(found, 0)) == documents(ids)[:, None]
  assert (same & (found >= 0)).any()
  np.testing.assert_array_equal(
    row['neighbor_mask'].any(-1), (found >= 0) & ~same
  )


def test_epochs_cover_everything_in_new_order(root):
  reader = tiny_data.reader(root, k=0)
  n = len(pipeline.Sequences(reader, L))
  batches = streams.take(_dataset(reader, batch_size=1), 2 * n)
  rows = [batch['tokens'][0].tobytes() for batch in batches]
  assert sorted(rows[:n]) == sorted(rows[n:])
  assert len(set(rows[:n])) == n
  assert rows[:n] != rows[n:]
  again = streams.take(_dataset(reader, batch_size=1), n)
  assert [batch['tokens'][0].tobytes() for batch in again] == rows[:n]
  other = streams.take(_dataset(reader, batch_size=1, seed=1), n)
  assert [batch['tokens'][0].tobytes() for batch in other] != rows[:n]


@pytest.mark.parametrize('train', [True, False])
def test_processes_share_the_rows(root, train):
  reader = tiny_data.reader(root, k=0)
  parts = [
    _dataset(reader, train=train, process_index=i, process_count=2)
    for i in range(2)
  ]
  source = pipeline.Sequences(reader, L, multiple_of=2 if train else 4)
  want = sorted(source[i]['tokens'].tobytes() for i in range(len(source)))
  filled = set(want) - {bytes(L * M * 4)}
  assert len(filled) == len(
    pipeline.Sequences(reader, L)
  )  # none is twice there
  share = len(source) // 2  # rows of one process in one pass
  passes = 2 if train else 1
  n = -(-passes * share // 2)
  if not train:
    assert [len(list(part)) for part in parts] == [n, n]
  got = [streams.take(part, n) for part in parts]
  assert all(batch['tokens'].shape == (2, L * M) for p in got for batch in p)
  rows = [[row.tobytes() for b in p for row in b['tokens']] for p in got]
  for i in range(passes):  # A batch may belong to two passes.
    one = slice(i * share, (i + 1) * share)
    assert sorted(rows[0][one] + rows[1][one]) == want


@pytest.mark.parametrize(
  'num_workers', [0, pytest.param(2, marks=pytest.mark.slow)]
)
def test_position_is_saved_and_restored(root, num_workers):
  """Workers give the same stream."""
  reader = tiny_data.reader(root)
  dataset = _dataset(reader, num_workers=num_workers)
  first, fresh, alone = iter(dataset), iter(dataset), iter(_dataset(reader))
  for _ in range(7):
    streams.assert_same(next(first), next(alone))
  fresh.set_state(first.get_state())
  for _ in range(5):
    expected = next(alone)
    streams.assert_same(next(first), expected)
    streams.assert_same(next(fresh), expected)
