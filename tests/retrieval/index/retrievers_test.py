# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Each retriever against slow loops over all chunks of other documents."""

import functools

import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import (
  neighbors as neighbors_lib,
  published_index as index_lib,
  retrievers,
  text_index,
  vectors as vectors_lib,
)
from retrieval.nn import colbert
from retrieval.search import (
  bm25 as bm25_lib,
  fuse,
  names,
  queries as queries_lib,
  rerank,
  retriever as retriever_lib,
)
from retrieval.searchers import base
from retrieval.text import tokens as tokens_lib
from tests.retrieval.index import neighbors_test
from tests.retrieval.search import sparse_index_test, tiny_encoder

_K = 5
data = neighbors_test.data


class _Letters:
  """Counts of letters: an embedder without a model."""

  dimension, fingerprint, metric = 16, 'letters', 'dot_product'

  def embed_queries(self, texts):
    return self.embed_texts(f'ask {text}' for text in texts)

  def embed_texts(self, texts, progress=None):
    del progress
    rows = [np.frombuffer(text.encode(), np.uint8) % 16 for text in texts]
    return np.array([np.bincount(x, minlength=16) for x in rows], np.float32)


@pytest.mark.parametrize('metric', ['dot_product', 'squared_l2'])
def test_the_metric_of_an_index_is_the_embedders(data, tmp_path, metric):
  embedder = _Letters()
  embedder.metric = metric
  vectors = vectors_lib.build_vector_store(
    tmp_path / 'vectors', data.chunks['train'], embedder
  )
  for given, expected in (('auto', metric), ('dot_product', 'dot_product')):
    config = index_lib.IndexConfig('exact', given, recall_at=2, num_queries=5)
    found = index_lib.build_index(
      tmp_path / given,
      vectors.array('vectors'),
      vectors.fingerprint,
      vectors_lib.index_config(config, vectors),
    )
    assert found.searcher.metric == expected


@pytest.fixture(scope='module')
def parts(data):
  train, embedder = data.chunks['train'], _Letters()
  vectors = {
    data.chunks[split].path: vectors_lib.build_vector_store(
      data.root / f'vectors-{split}', data.chunks[split], embedder
    )
    for split in tokens_lib.SPLITS
  }
  array = vectors[train.path].array('vectors')
  searcher = searchers.ExactSearcher(array, 'squared_l2')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(colbert, 'load', lambda _: tiny_encoder.Words())
    indices = text_index.TextIndices(data.root, train, colbert='words')
    yield retrievers.Retrievers(
      indices,
      lambda: retriever_lib.Dense(
        train,
        searcher,
        'dense',
        embedder=lambda: embedder,
        vectors=lambda chunks: vectors[chunks.path],
      ),
      0.25,
    )


def _find(retriever, queries, rows, k):
  asked = queries_lib.ChunkQueries(queries, queries.ids(0, rows))
  return retriever.search(asked, k)


def _tokens(chunks, n, skip=0):
  """Tokens of chunk n, of the next one with `skip`."""
  m = chunks.chunk_length
  tokens, mask = chunks.gather(np.array([n]), 2 * m)
  part = slice(m, None) if skip else slice(m)
  return tokens[0, part][mask[0, part]].tolist()


def common(a, b):
  """Length of the longest common subsequence by its recurrence."""
  table = np.zeros((len(a) + 1, len(b) + 1), int)
  for i, x in enumerate(a):
    for j, y in enumerate(b):
      longer = max(table[i, j + 1], table[i + 1, j])
      table[i + 1, j + 1] = table[i, j] + 1 if x == y else longer
  return table[-1, -1]


def _others(data, queries, n):
  """Datastore chunks of other documents than that of query n."""
  train = data.chunks['train']
  hashes = train.document_hashes(np.arange(train.num_chunks))
  return np.flatnonzero(hashes != queries.document_hashes(np.array([n]))[0])


def _dense(data, queries, n):
  texts, embed = queries.texts(np.array([n])), _Letters()
  train = data.chunks['train']
  others = _others(data, queries, n)
  keys = embed.embed_texts(train.texts(others))
  distances = ((keys - embed.embed_texts(texts)) ** 2).sum(1)
  return others[np.argsort(distances, kind='stable')]


def _words(data, queries, n, kind='bm25'):
  train = data.chunks['train']
  index = sparse_index_test.in_memory(
    text_index.WORDS[kind], train.texts(np.arange(train.num_chunks))
  )
  query = queries.texts(np.array([n]))
  ids = index.search(query, train.num_chunks)[0][0]
  return ids[np.isin(ids, _others(data, queries, n))]


def _hybrid(data, queries, n):
  lists = [_dense(data, queries, n), _words(data, queries, n)]
  ids, _ = fuse.fused([(x[None, :100],) * 2 for x in lists], 100)
  return ids[ids >= 0]


def _weighted(data, queries, n):
  train, embed = data.chunks['train'], _Letters()
  text = queries.texts(np.array([n]))
  near = _dense(data, queries, n)[:100]
  keys = embed.embed_texts(train.texts(near))
  distances = ((keys - embed.embed_texts(text)) ** 2).sum(1)
  index = sparse_index_test.in_memory(
    bm25_lib.Bm25, train.texts(np.arange(train.num_chunks))
  )
  ids, scores = index.search(text, train.num_chunks)
  kept = np.flatnonzero(np.isin(ids[0], _others(data, queries, n)))[:100]
  lists = (near[None], -distances[None]), (ids[:, kept], scores[:, kept])
  return fuse.fused(lists, 100, (0.75, 0.25))[0][0]


def _oracle(data, queries, n):
  following, train = _tokens(queries, n, 1), data.chunks['train']
  return sorted(
    _hybrid(data, queries, n)[:100],
    key=lambda chunk: (
      -common(following, _tokens(train, chunk) + _tokens(train, chunk, 1))
    ),
  )


_SLOW = {
  'dense': _dense,
  'bm25': _words,
  'tfidf': functools.partial(_words, kind='tfidf'),
  'hybrid': _hybrid,
  'weighted': _weighted,
  'oracle': _oracle,
}


@pytest.mark.parametrize('split', ['train', 'valid'])
@pytest.mark.parametrize('name', _SLOW)
def test_neighbors_equal_slow_loops(name, split, data, parts):
  queries = data.chunks[split]
  ids, scores = _find(parts.make(name), queries, slice(1, 5), _K)
  assert (np.diff(scores) <= 0).all()
  for row, n in zip(ids, range(1, 5), strict=True):
    expected = list(_SLOW[name](data, queries, n)[:_K])
    assert row.tolist() == expected + [-1] * (_K - len(expected))


def test_a_store_is_of_one_retriever(data, parts, tmp_path):
  train = data.chunks['train']
  given = tmp_path / 'n', train, train
  built = neighbors_lib.build_neighbor_store(*given, parts.make('bm25'), k=3)
  ids = built.ids(np.arange(len(built)))
  own = train.document_hashes(np.arange(len(built)))
  found = train.document_hashes(np.maximum(ids, 0))
  assert ((found != own[:, None]) | (ids < 0)).all() and (ids >= 0).any()
  with pytest.raises(ValueError, match='index: expected'):
    neighbors_lib.build_neighbor_store(*given, parts.make('random'), k=3)


@pytest.mark.parametrize('name', names.NAMES)
@pytest.mark.usefixtures('unchecked')
def test_refuses_what_is_no_text_and_no_passages(name, parts):
  retriever = parts.make(name)
  with pytest.raises(ValueError, match='^queries'):
    retriever.search([5], _K)
  with pytest.raises(ValueError, match='k=0'):
    retriever.search(['a text'], 0)


def test_the_oracle_takes_no_new_text(parts):
  with pytest.raises(ValueError, match='new text'):
    parts.make('oracle').search(['a text'], _K)


@pytest.mark.parametrize('name', names.FOR_TEXTS)
def test_new_text_finds_what_its_chunk_would(name, data, parts):
  retriever, train = parts.make(name), data.chunks['train']
  texts = train.texts(np.arange(4))
  ids, scores = retriever.search([*texts, ' '], _K)
  assert ids.shape == scores.shape == (5, _K)
  if name == 'dense':  # Its own document may be found, and equal texts.
    assert train.texts(ids[:4, 0]) == texts
  assert ids[4].tolist() == [-1] * _K and (scores[4] == -np.inf).all()
  # Its own document is left out where its hash is known.
  own = train.document_hashes(np.arange(4))
  found, _ = retriever.search(queries_lib.Queries(texts, excluded=own), 3)
  hashes = train.document_hashes(np.maximum(found, 0))
  assert ((hashes != own[:, None]) | (found < 0)).all() and (found >= 0).any()


def test_random_neighbors_are_spread_over_all_chunks(data, parts):
  train = data.chunks['train']
  rows = slice(0, train.store.rows('document')[0])
  ids, _ = _find(parts.make('random'), train, rows, 8)
  assert all(len(set(row)) == 8 for row in ids.tolist())
  assert 0.45 < len(np.unique(ids)) / train.num_chunks < 0.67  # 0.56 expected


def test_tokens_above_the_surrogates_are_compared():
  a, b = (rerank._string(np.array(x)) for x in ([0xD7FF, 0xD800], [128_000]))
  assert len(a) == 2 and len(b) == 1 and len({*a, *b}) == 3


UNITS = {
  'dense': 'squared L2 distance',
  'bm25': 'BM25',
  'tfidf': 'TF-IDF',
  'hybrid': 'fused rank score',
  'weighted': 'weighted score',
  'colbert': 'sum of best inner products',
  'random': 'random',
  'oracle': 'shared tokens',
}


def test_each_tells_what_its_scores_are(data, parts, tmp_path):
  assert {name: parts.make(name).unit for name in names.NAMES} == UNITS
  queries, train = data.chunks['valid'], data.chunks['train']
  built = neighbors_lib.build_neighbor_store(
    tmp_path / 'neighbors', queries, train, parts.make('bm25'), k=2
  )
  assert built.unit == 'BM25'
  assert base.in_unit(-3.0, 'squared L2 distance') == base.in_unit(3.0, 'BM25')
