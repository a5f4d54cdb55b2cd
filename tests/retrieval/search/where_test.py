# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Filters on metadata, and every retriever among the passages that fit."""

import datetime
import types

import numpy as np
import pytest

from retrieval import searchers
from retrieval.search import (
  bm25,
  fuse,
  late_interaction,
  queries as queries_lib,
  retriever as retriever_lib,
  tfidf,
  token_store,
  where as where_lib,
)
from retrieval.searchers import subset as subset_lib
from retrieval.text import (
  chunks as chunks_lib,
  passages as passages_lib,
  tokens as tokens_lib,
)
from tests.retrieval.search import (
  sparse_index_test,
  tiny_encoder,
)
from tests.retrieval.text import json_corpus, tiny_blocks

ROWS = [
  {'year': 2009, 'lang': 'en', 'date': '2018-12-31', 'count': '7'},
  {'year': 2010, 'lang': 'de', 'date': '2019-01-01', 'count': '20'},
  {'year': 2015, 'lang': 'en', 'date': '2019', 'free': True},
  {'year': 2020, 'lang': 'fr', 'date': '2019-12-31T23:00Z', 'free': False},
  {'year': 2021, 'lang': 'en', 'date': '2020-01-01', 'count': '100'},
  {'title': 'without'},
]
WORDS = ('river', 'queen', 'apple')


@pytest.fixture(scope='module')
def chunks(tmp_path_factory):
  root, rng = tmp_path_factory.mktemp('where'), np.random.default_rng(0)
  rows = [
    {'id': str(i), 'text': ' '.join(rng.choice(WORDS, 20)), **row}
    for i, row in enumerate(ROWS)
  ]
  path = json_corpus.write(root, rows).config.path
  names = 'year,lang,date,free,count'
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    json_corpus.opened('jsonl', path, metadata=names),
    tiny_blocks.write_vocabulary(root / 'tokenizer'),
    documents_per_shard=4,
  )
  return chunks_lib.build_chunk_store(root / 'c', tokens, chunk_length=16)


@pytest.mark.parametrize(
  ('where', 'documents'),
  [
    ({}, [0, 1, 2, 3, 4, 5]),
    ({'year': 2015}, [2]),
    ({'year': (2010, 2020)}, [1, 2, 3]),
    ({'year': (None, 2010.5)}, [0, 1]),
    ({'lang': ['de', 'fr']}, [1, 3]),
    ({'lang': {'de', None}}, [1, 5]),
    ({'year': (2010, None), 'lang': 'en'}, [2, 4]),
    ({'date': ('2019-01-01', None)}, [1, 3, 4]),
    ({'date': (None, '2019')}, [0, 1, 2, 3]),
    ({'date': (datetime.date(2019, 1, 1), '2019-12')}, [1, 3]),
    ({'year': ('2010', '2020')}, [1, 2, 3]),
    ({'free': False}, [3]),
    ({'free': None}, [0, 1, 4, 5]),
    ({'count': (10, None)}, [1, 4]),
    ({'date': ('2019-12-31 22:59', '2019-12-31T23:00:00+00:00')}, [3]),
    ({'date': (datetime.datetime(2019, 12, 31, 23, 1), None)}, [4]),
    ({'date': ['2020-01-01T00:00+01:00', '2019']}, [2, 3]),
    ({'year': (None, None)}, [0, 1, 2, 3, 4]),
    ({'year': np.int64(2009)}, [0]),
  ],
)
def test_a_filter_keeps_the_documents_that_fit(chunks, where, documents):
  subset = where_lib.kept(chunks, where)
  owners = chunks.documents(np.arange(len(chunks)))
  np.testing.assert_array_equal(subset.mask, np.isin(owners, documents))
  assert where_lib.kept(chunks, where) is subset  # evaluated once
  rows = chunks.metadata([-1, *subset.rows])
  assert rows[0] == {} and all(row.keys() >= {*where} for row in rows[1:])


@pytest.mark.parametrize(
  ('where', 'words'),
  [
    ({'yaer': 2009}, ['yaer', 'year', 'lang']),
    ({'year': 'x'}, ['year', '2009']),
    ({'lang': (1, 2)}, ['lang', 'en']),
    ({'lang': ('2019', None)}, ['lang', 'en']),
    ({'free': (False, None)}, ['free']),
    ({'year': (1, 2, 3)}, ['year']),
    ({'year': [1, 'x']}, ['year']),
    ({'year': {'a': 1}}, ['year']),
    ({'lang': ('de', 'fr')}, ['lang', 'list']),
    ({'year': (2020, 2010)}, ['2020', '2010']),
    ({'date': ('2020', '2019-12')}, ['2020', '2019-12']),
    ({'date': ('2019-01-01T10:00', '2019-01-01T10:00+01:00')}, ['date']),
    ({'date': (None, '2019-02-30')}, ['2019-02-30']),
  ],
)
def test_another_field_or_type_is_named(chunks, where, words):
  with pytest.raises(ValueError) as error:
    where_lib.kept(chunks, where)
  assert not [word for word in words if word not in str(error.value)]


def test_blank_cells_and_nan_are_no_values_and_large_numbers_are_exact(
  tmp_path,
):
  table = 'id,text,year,post\na,river,2015,1234567890123456789\n'
  table += 'b,queen,,1234567890123456788\nc,apple,nan,12.5\n'
  (tmp_path / 'a.csv').write_text(table)
  path = tmp_path / 'a.csv'
  tokens = tokens_lib.build_token_store(
    tmp_path / 'tokens',
    json_corpus.opened('csv', path, metadata='year,post'),
    tiny_blocks.write_vocabulary(tmp_path / 'tokenizer'),
  )
  store = chunks_lib.build_chunk_store(tmp_path / 'c', tokens, chunk_length=16)
  for where, documents in (
    ({'year': (2000, None)}, [0]),
    ({'year': (None, None)}, [0, 2]),
    ({'year': [None]}, [1]),
    ({'year': [None, 2015]}, [0, 1, 2]),
    ({'post': 1234567890123456789}, [0]),
    ({'post': (1234567890123456789, None)}, [0]),
    ({'post': (None, 12.5)}, [2]),
  ):
    rows = where_lib.kept(store, where).rows
    assert store.documents(rows).tolist() == documents, where


def test_filters_of_configs_and_last_dates(chunks):
  text = "{'year': (2010, None), 'lang': ['en', 'de']}"
  assert where_lib.parse(text) == {'year': (2010, None), 'lang': ['en', 'de']}
  assert where_lib.parse('') == {}
  for wrong in ('year', '[1]', '{', "{'year': (1,)}", 'open("x")'):
    with pytest.raises(ValueError, match='^where='):
      where_lib.parse(wrong)
  spelled = where_lib.parse(where_lib.spell({'x': {2, 1}, 'y': (None, 3)}))
  assert spelled == {'x': [1, 2], 'y': (None, 3)}
  assert where_lib.spell(None) == ''
  wanted = {'lang': 'en', 'date': (None, '2019')}
  assert where_lib.until({'lang': 'en'}, chunks, '2019') == wanted
  for where, date in (({}, 'May 3'), ({'date': '2018'}, '2019')):
    with pytest.raises(ValueError, match='^as_of'):
      where_lib.until(where, chunks, date)
  bare = passages_lib.TextList(['river'])
  with pytest.raises(ValueError, match='^as_of'):
    where_lib.until({}, bare, '2019')
  with pytest.raises(ValueError, match='corpus.metadata'):
    where_lib.kept(bare, {'year': 1})


SHARES = (0, 0.1, 0.5, 1)


def _restricted(search, queries, subset, k):
  """The first k texts of a subset of a search for all."""
  ids, scores = search(queries, len(subset.mask))
  columns = subset_lib.first((ids >= 0) & subset.mask[ids], k)
  found = subset_lib.take(ids, columns, -1)
  return found, subset_lib.take(scores, columns, -np.inf)


def _check(search, queries, subset, k, rtol=0):
  ids, scores = search(queries, k, subset)
  expected = _restricted(search, queries, subset, k)
  np.testing.assert_array_equal(ids, expected[0])
  np.testing.assert_allclose(scores, expected[1], rtol)


@pytest.mark.parametrize('index_of', [bm25.Bm25, tfidf.TfIdf])
@pytest.mark.parametrize('share', SHARES)
def test_words_keep_their_order_and_scores(index_of, share, tmp_path):
  texts = sparse_index_test._random_texts(60)[:-2]
  index = sparse_index_test._build(index_of, tmp_path / 'i', texts)
  mask = np.random.default_rng(3).random(len(texts)) < share
  for k in (1, 9):
    subset = subset_lib.Subset(mask)
    _check(index.search, sparse_index_test.QUERIES, subset, k)


@pytest.mark.parametrize('share', SHARES)
def test_late_interaction_fills_k_from_kept_passages(share, tmp_path):
  texts = [f'word{i % 11} word{i % 7} word{i % 5}' for i in range(60)]
  words = tiny_encoder.Words()
  passages = passages_lib.TextList(texts)
  with tiny_encoder.small_shards():
    token_store.build(tmp_path / 'colbert', words, passages)
  index, pruned = (
    late_interaction.LateInteraction(tmp_path / 'colbert', words, *search)
    for search in ((99, 99), (1, 2))
  )
  subset = subset_lib.Subset(np.random.default_rng(1).random(60) < share)
  queries = ['word3 word5', 'word1']
  # A product of fewer rows may round otherwise, as some CPUs' libraries do.
  _check(index.search, queries, subset, 9, 1e-6)
  _check(pruned.unpruned().search, queries, subset, 9, 1e-6)
  ids, _ = pruned.search(queries, 9, subset)
  count = min(9, len(subset.rows))
  assert subset.mask[ids[:, :count]].all() and (ids[:, :count] >= 0).all()


def _retrievers(chunks):
  rng = np.random.default_rng(4)
  vectors = rng.standard_normal((len(chunks), 8)).astype(np.float32)
  embedder = types.SimpleNamespace(
    embed_texts=lambda texts: vectors[: len(texts)] + 1
  )
  dense = retriever_lib.Dense(
    chunks,
    searchers.ExactSearcher(vectors),
    'vectors',
    embedder=lambda: embedder,
  )
  index = sparse_index_test.in_memory(
    bm25.Bm25, chunks.texts(np.arange(len(chunks)))
  )
  words = retriever_lib.IndexRetriever(chunks, index, 'words')
  return dense, words, fuse.Fused(dense, words), retriever_lib.Random(chunks, 1)


def test_every_retriever_is_filtered_and_excludes_own_documents(chunks):
  where = {'lang': ['en', 'de']}
  subset = where_lib.kept(chunks, where)
  owners = chunks.document_hashes(np.arange(len(chunks)))
  for inner in _retrievers(chunks):
    found = retriever_lib.Among(inner, subset)
    assert found.fingerprint != inner.fingerprint
    assert found.unit == inner.unit
    asked = queries_lib.Queries(['river queen apple'] * 3)
    for asked.excluded in (None, owners[:3]):
      ids, _ = found.search(asked, len(chunks))
      everything, _ = inner.search(asked, len(chunks))
      for row, all_of_them in zip(ids.tolist(), everything, strict=True):
        wanted = {*all_of_them.tolist()} & {*subset.rows.tolist()}
        assert {*row} - {-1} == wanted and row[len(wanted)] == -1
    french = where_lib.kept(chunks, {'lang': 'fr'})
    nothing = retriever_lib.Among(found, french)
    assert (nothing.search(asked.take(range(2)), 3)[0] == -1).all()
