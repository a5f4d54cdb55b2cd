# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors on a tiny corpus, against slow loops."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import (
  index as index_lib,
  neighbor_store,
  neighbors as neighbors_lib,
  vectors as vectors_lib,
)
from retrieval.nn import embedders
from retrieval.search import exclude, retriever as retriever_lib
from retrieval.store import store
from retrieval.text import chunks as chunks_lib
from tests.retrieval.store import tiny_stores

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  return tiny_stores.make(root, np.random.default_rng(0))


class LetterEmbedder(embedders.Embedder):
  """Counts of letters: a deterministic stand-in with the same interface."""

  dimension = 16

  def __init__(self):
    self.fingerprint = 'letters'

  def embed_texts(self, texts, progress=None):
    vectors = np.zeros((len(texts), self.dimension), np.float32)
    for row, text in zip(vectors, texts, strict=True):
      for byte in text.encode():
        row[byte % self.dimension] += 1
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1)[:, None]


@pytest.fixture(scope='module')
def vectors(data):
  return {
    split: vectors_lib.build_vector_store(
      data.root / f'vectors-{split}',
      data.chunks[split],
      LetterEmbedder(),
    )
    for split in chunks_lib.SPLITS
  }


def _index(vectors, metric='squared_l2'):
  searcher = searchers.ExactSearcher(vectors.array('vectors'), metric)
  return index_lib.Index(pathlib.Path('index'), searcher, 'exact', '', {})


def _slow_neighbors(data, vectors, queries, k, split='train'):
  """The k nearest chunks of other documents, by plain loops."""
  database = np.asarray(vectors[split].array('vectors'), np.float64)
  asking = np.asarray(vectors[queries].array('vectors'), np.float64)
  owner = data.chunks[split].document_hashes(np.arange(len(database)))
  own = data.chunks[queries].document_hashes(np.arange(len(asking)))
  result = np.full((len(asking), k), -1)
  for i, q in enumerate(asking):
    distance = ((database - q) ** 2).sum(1)
    order = [
      j for j in np.argsort(distance, kind='stable') if owner[j] != own[i]
    ][:k]
    result[i, : len(order)] = order
  return result, database, asking


@pytest.mark.parametrize('queries', ['train', 'valid'])
@pytest.mark.parametrize('max_fetch', [3, 128])
def test_neighbors_equal_slow_loops(data, vectors, queries, max_fetch):
  k = 3
  want, database, asking = _slow_neighbors(data, vectors, queries, k)
  index = _index(vectors['train'])
  search = exclude.OtherDocuments(
    index.searcher,
    lambda: index.searcher,
    data.chunks['train'].id_hash,
    k,
    max_fetch,
  )
  own = data.chunks[queries].document_hashes(np.arange(len(asking)))
  ids, scores = search.search(asking.astype(np.float32), own)
  hashes = data.chunks['train'].document_hashes(ids)
  assert (hashes != own[:, None]).all()
  distance = ((database[ids] - asking[:, None]) ** 2).sum(-1)
  best = ((database[want] - asking[:, None]) ** 2).sum(-1)
  np.testing.assert_allclose(distance, best, atol=1e-5)
  np.testing.assert_allclose(-scores, best, atol=1e-5)


def test_short_rows_are_searched_again_exactly(data, vectors):
  """An index that only ever finds the query's own document loses nothing."""
  chunks = data.chunks['train']
  everything = np.arange(chunks.num_chunks)
  owner = chunks.document_hashes(everything)

  class OwnOnly(searchers.Searcher):
    num_vectors, metric = chunks.num_chunks, 'squared_l2'
    unit = 'nothing'

    def search(self, queries, k):
      ids = np.full((len(queries), k), -1)
      for row, query in zip(ids, self.own, strict=True):
        mine = everything[owner == query][:k]
        row[: len(mine)] = mine
      return ids, np.where(ids >= 0, 0.0, -np.inf).astype(np.float32)

  approximate = OwnOnly()
  approximate.own = owner
  exact = _index(vectors['train']).searcher
  search = exclude.OtherDocuments(approximate, lambda: exact, chunks.id_hash, 2)
  queries = np.asarray(vectors['train'].array('vectors'))
  ids, _ = search.search(queries, owner)
  assert (ids >= 0).all()
  assert (chunks.document_hashes(ids) != owner[:, None]).all()


def test_k_larger_than_what_exists_is_padded(data, vectors):
  chunks = data.chunks['valid']
  index = _index(vectors['valid'])
  k = chunks.num_chunks + 5
  search = exclude.OtherDocuments(
    index.searcher, lambda: index.searcher, chunks.id_hash, k
  )
  own = chunks.document_hashes(np.arange(chunks.num_chunks))
  ids, scores = search.search(vectors['valid'].array('vectors')[:], own)
  others = (own[None] != own[:, None]).sum(1)
  np.testing.assert_array_equal((ids >= 0).sum(1), others)
  assert (scores[ids < 0] == -np.inf).all()


def _dense(data, vectors, fingerprint='letters'):
  """The retriever of the training chunks."""
  of_chunks = {data.chunks[split].path: vectors[split] for split in vectors}
  searcher = _index(vectors['train']).searcher
  return retriever_lib.Dense(
    data.chunks['train'],
    searcher,
    fingerprint,
    embedder=LetterEmbedder,
    vectors=lambda chunks: of_chunks[chunks.path],
  )


def _build(data, vectors, path, queries='train', k=3):
  return neighbors_lib.build_neighbor_store(
    path,
    data.chunks[queries],
    data.chunks['train'],
    _dense(data, vectors),
    k=k,
  )


def test_counting_chunks_takes_memory_for_documents_only():
  rng = np.random.default_rng(0)
  documents = rng.integers(0, 1 << 63, 400, dtype=np.uint64)
  documents[-1] = documents[0]  # two documents whose hashes are equal

  def shards(repeat=1):
    for part in np.split(documents, 20):
      counts = repeat * np.arange(1, len(part) + 1)
      yield np.repeat(part, counts)

  hashes, counts = exclude._count_by_document(shards())
  want = np.unique(np.concatenate(list(shards())), return_counts=True)
  np.testing.assert_array_equal(hashes, want[0])
  np.testing.assert_array_equal(counts, want[1])

  chunks_bytes = 8 * 100 * int(counts.sum())
  tracemalloc.start()
  exclude._count_by_document(shards(100))
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < chunks_bytes / 2


_KILLED = """
import pathlib, sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from retrieval import searchers
from retrieval.index import neighbors
from retrieval.search import retriever
from retrieval.store import store, store_writer
from retrieval.text import chunks
data = {data!r}
write = store_writer.StoreWriter.write
def slow_write(self, *args):
  write(self, *args)
  time.sleep(0.2)
store_writer.StoreWriter.write = slow_write
queries = chunks.ChunkStore(data + '/chunks-train')
vectors = store.Store.open(data + '/vectors-train', 'vectors')
searcher = searchers.ExactSearcher(vectors.array('vectors'), 'squared_l2')
dense = retriever.Dense(
  queries, searcher, 'letters', vectors=lambda _: vectors)
neighbors.build_neighbor_store({out!r}, queries, queries, dense, k=3)
"""


@pytest.mark.slow
def test_killed_job_resumes_and_ends_with_the_same_bytes(
  data, vectors, tmp_path
):
  _build(data, vectors, tmp_path / 'whole')
  script = textwrap.dedent(_KILLED).format(
    root=str(ROOT),
    tests=str(ROOT / 'tests'),
    data=str(data.root),
    out=str(tmp_path / 'killed'),
  )
  env = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
  process = subprocess.Popen([sys.executable, '-c', script], env=env)
  deadline = time.monotonic() + 120
  while not list(tmp_path.glob('killed.partial-*/shard-*.json')):
    assert process.poll() is None, 'The job ended before it could be killed.'
    assert time.monotonic() < deadline
    time.sleep(0.02)
  os.kill(process.pid, signal.SIGKILL)
  process.wait()
  with pytest.raises(FileNotFoundError):
    store.Store.open(tmp_path / 'killed', neighbor_store.KIND)
  _build(data, vectors, tmp_path / 'killed')
  assert tiny_stores.file_hashes(
    tmp_path / 'killed'
  ) == tiny_stores.file_hashes(tmp_path / 'whole')


def test_own_rows_are_excluded_before_the_best_k():
  hashes = np.asarray([7, 8, 9, 7, 5, 6], np.uint64)
  ids = np.asarray([[0, 1, 3, 2, 4], [1, 0, -1, -1, -1], [3, 0, 3, 0, -1]])
  own = np.asarray([7, 99, 7], np.uint64)

  def kept(ids, k):
    columns = exclude.other_columns(ids, hashes[np.maximum(ids, 0)], own, k)
    return exclude.take(ids, columns, -2).tolist()

  assert kept(ids, 3) == [[1, 2, 4], [1, 0, -2], [-2] * 3]
  # Fewer were found than are wanted.
  assert kept(ids[:, :1], 2) == [[-2, -2], [1, -2], [-2, -2]]
