# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of a datastore: nested, whole documents, searched exactly."""

import types

import numpy as np
import pytest

from retrieval.index import datastore_subsets, neighbors
from retrieval.store import shards
from tests.retrieval.store import tiny_stores

D, K = 6, 5


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root, rng = tmp_path_factory.mktemp('data'), np.random.default_rng(0)
  chunks = tiny_stores.make(root, rng).chunks
  vectors = {}
  for split in ('train', 'valid', 'all'):
    rows = chunks[split].store.rows('document')
    fields = {'passages': chunks[split].fingerprint}
    writer = shards.StoreWriter(root / f'vectors-{split}', 'vectors', fields)
    for i, n in enumerate(rows):
      block = rng.integers(-3, 4, (n, D)).astype(np.float32)
      shards.write_shard(writer.folder, i, {'vectors': block})
    vectors[split] = writer.publish(len(rows))
  return types.SimpleNamespace(root=root, chunks=chunks, vectors=vectors)


def test_parts_are_nested_and_of_whole_documents(data):
  datastore = data.chunks['train']
  documents = datastore.documents(np.arange(datastore.num_chunks))
  before: set[int] = set()
  for share in (0.1, 0.4, 0.7, 1.0):
    ids = datastore_subsets.part(datastore, share).rows
    chosen = set(documents[ids].tolist())
    assert len(ids) == np.isin(documents, list(chosen)).sum()
    assert before < chosen and (np.diff(ids) > 0).all()
    before = chosen
  assert len(ids) == datastore.num_chunks
  other = datastore_subsets.part(datastore, 0.4, seed=1).rows
  less = datastore_subsets.part(datastore, 0.4).rows
  assert not np.array_equal(other, less)


def test_ranks_are_uniform():
  hashes = np.random.default_rng(0).integers(0, 2**63, 20_000, np.uint64) * 2
  ranks = datastore_subsets.document_ranks(hashes)
  np.testing.assert_allclose(
    np.histogram(ranks, 10, (0, 1))[0] / 2000, 1, atol=0.12
  )
  # Also of the documents that one split's hashes chose.
  low = ranks[hashes < np.uint64(2**60)]
  assert 0.45 < low.mean() < 0.55


@pytest.mark.parametrize('queries', ['valid', 'all'])
@pytest.mark.parametrize('share', [0.15, 1.0])
def test_neighbors_are_the_nearest_of_the_part(data, tmp_path, share, queries):
  """'all' asks for its own documents, too, which are then left out."""
  asking, datastore = data.chunks[queries], data.chunks['train']
  retriever = datastore_subsets.part_retriever(
    data.vectors[queries],
    datastore,
    data.vectors['train'],
    metric='squared_l2',
    share=share,
  )
  found = neighbors.build_neighbor_store(
    tmp_path / 'neighbors', asking, datastore, retriever, k=K
  )
  part = datastore_subsets.part(datastore, share).rows
  keys = data.vectors['train'].array('vectors')[:][part]
  hashes = datastore.document_hashes(part)
  for i in range(asking.num_chunks):
    query = data.vectors[queries].array('vectors')[np.array([i])][0]
    distances = ((keys - query) ** 2).sum(1)
    mine = hashes == asking.document_hashes(np.array([i]))[0]
    order = [j for j in np.argsort(distances, kind='stable') if not mine[j]]
    want = [*part[order[:K]], *[-1] * K][:K]
    assert found.ids(np.array([i]))[0].tolist() == want
  assert found.store.fields['datastore'] == datastore.fingerprint
