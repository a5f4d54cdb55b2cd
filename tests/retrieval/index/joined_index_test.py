# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Several data folders as one."""

import numpy as np
import pytest

import retrieval
from retrieval.index import text_index, vectors as vectors_lib
from retrieval.nn import colbert
from retrieval.search import fuse, queries as queries_lib, where as where_lib
from retrieval.searchers import subset as subset_lib
from retrieval.text import joined as joined_lib, tokens as tokens_lib
from tests.retrieval.index import neighbors_test
from tests.retrieval.search import tiny_encoder
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import tiny_blocks

QUERIES = ['moon river', 'queen', '日本 apple', ' ']


class Others(neighbors_test.LetterEmbedder):
  """Another embedder: the same letters, another fingerprint."""

  def __init__(self):
    self.fingerprint = 'other letters'


def make(root, seed, embedder, metadata='', **sizes):
  """Writes a data folder with an exact index."""
  rng = np.random.default_rng(seed)
  data = tiny_stores.make(root, rng, metadata=metadata, **sizes)
  vectors = vectors_lib.build_vector_store(
    root / 'vectors-train', data.chunks['train'], embedder
  )
  config = retrieval.IndexConfig(searcher='exact', num_queries=5, recall_at=2)
  retrieval.build_index(
    root / 'index', vectors.array('vectors'), vectors.fingerprint, config
  )
  return root


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """Two folders of one embedder, with other tokenizers, and one of another."""
  root, letters = tmp_path_factory.mktemp('x'), neighbors_test.LetterEmbedder()
  sizes = {'num_documents': 12, 'num_pieces': 286, 'chunk_length': 6}
  return [
    make(root / 'a/data', 0, letters, 'year'),
    make(root / 'b/data', 1, letters, **sizes),
    make(root / 'c', 2, Others(), num_documents=20),
  ]


@pytest.fixture(scope='module')
def both(folders):
  letters = neighbors_test.LetterEmbedder()
  return retrieval.open_index(folders[:2], embedder=letters)


def _parts(both, result):
  """The index and the row of each hit, as its place names them."""
  for row, places in enumerate(result.places):
    for j, place in enumerate(places):
      name, _, at = place.rpartition(':')
      if name:
        yield row, j, both.parts[['a', 'b'].index(name)], int(at)


def test_equal_embedders_are_compared_by_scores(both):
  result = both.search(QUERIES, 60)
  vectors = [x._vectors.array('vectors')[:] for x in both.parts]
  asked = both.embedder.embed_queries(QUERIES)
  apart = ((asked[:, None] - np.concatenate(vectors)[None]) ** 2).sum(-1)
  best = np.argsort(apart, axis=1, kind='stable')[:, :60]
  found = -np.take_along_axis(apart, best, 1)[:3]
  np.testing.assert_allclose(result.scores[:3], found, atol=1e-5)
  of_ids = -np.take_along_axis(apart, result.ids, 1)[:3]
  np.testing.assert_allclose(of_ids, result.scores[:3], atol=1e-5)
  np.testing.assert_array_equal(result.ids[3], -1)
  assert result.unit == 'squared L2 distance' and len(both) == apart.shape[1]
  by_vectors = both.search(asked[:3], 60)
  np.testing.assert_array_equal(by_vectors.ids, result.ids[:3])
  assert {x.split(':')[0] for x in result.places[0]} == {'a', 'b'}


def test_hits_are_of_their_folder(both):
  result = both.search(QUERIES, 60)
  documents = both.chunks.documents(np.maximum(result.ids, 0))
  for row, j, part, at in _parts(both, result):
    chunks = part.chunks
    assert result.texts[row][j] == chunks.texts(np.array([at]))[0]
    assert result.titles[row][j] == chunks.titles([at])[0]
    [own] = chunks.documents(np.array([at]))
    name = both.chunks.tokens.document_id(int(documents[row, j]))
    assert name == f'{result.places[row][j].rpartition(":")[0]}:' + (
      chunks.tokens.document_id(int(own))
    )
    [have] = both.chunks.metadata([result.ids[row, j]])
    assert have == {'year': None} | chunks.metadata([at])[0]
  assert result.places[3] == [''] * 60 and result.texts[3] == [''] * 60
  assert result.places[0][0] in str(result)


@pytest.mark.parametrize(
  ('where', 'names'),
  [
    ({'year': (2003, 2020)}, {'a'}),
    ({'year': [*range(2003, 2020), None]}, {'a', 'b'}),
    ({'year': 1999}, set()),
  ],
)
def test_a_folder_without_a_field_has_no_value(both, where, names):
  result = both.search(QUERIES, len(both), where)
  assert {x.split(':')[0] for y in result.places for x in y} - {''} == names
  expected = [
    x for x in both.search(QUERIES, len(both)).ids[0] if _fits(both, x, where)
  ]
  assert result.ids[0][result.ids[0] >= 0].tolist() == expected
  with pytest.raises(ValueError, match="'yaer'.*year"):
    both.search(QUERIES, 2, {'yaer': 2003})


def _fits(both, row, where):
  [value], [allowed] = both.chunks.metadata([row])[0].values(), where.values()
  if isinstance(allowed, tuple):
    return value is not None and allowed[0] <= value <= allowed[1]
  return value in (allowed if isinstance(allowed, list) else [allowed])


def test_a_document_is_left_out_by_its_id(both):
  ids = [{*_documents(both, x)} for x in np.split(np.arange(len(both)), [90])]
  document = min(x for x in ids[0] if f'b:{x[2:]}' in ids[1])[2:]
  excluded = tokens_lib.hash_ids([document] * len(QUERIES))
  asked = queries_lib.Queries(QUERIES, excluded=excluded, questions=True)
  for where in ({}, {'year': [*range(2001, 2030), None]}):
    subset = where_lib.kept(both.chunks, where)
    found, _ = both.retriever.search(asked.among(subset), len(both))
    named = {*_documents(both, found[0][found[0] >= 0])}
    allowed = {*_documents(both, subset.rows)}
    assert named == {x for x in allowed if x[2:] != document} < allowed


def _documents(both, rows):
  numbers = both.chunks.documents(rows).tolist()
  return [both.chunks.tokens.document_id(x) for x in numbers]


def test_other_embedders_are_fused_by_ranks(folders):
  models = [neighbors_test.LetterEmbedder(), Others()]
  index = retrieval.open_index([folders[0], folders[2]], embedder=models)
  assert index.search(QUERIES, 7).unit == 'fused rank score'
  first = len(index.parts[0])
  for where in (None, {'year': (2001, 2030)}, {'year': [None]}):
    result = index.search(QUERIES, 30, where)
    lists = []
    for part, at in zip(index.parts, (0, first), strict=True):
      known = part.chunks.tokens.metadata.names
      if where and ('year' in known) == isinstance(where['year'], list):
        continue  # no document of the folder fits
      ids, scores = part.retriever.search(
        queries_lib.Queries(QUERIES, questions=True).among(
          where_lib.kept(part.chunks, where) if where and known else None
        ),
        fuse.CANDIDATES,
      )
      lists.append((np.where(ids < 0, -1, ids + at), scores))
    ids, scores = fuse.fused(lists, 30)
    np.testing.assert_array_equal(result.ids, ids)
    np.testing.assert_array_equal(result.scores, scores)
  with pytest.raises(ValueError, match='queries: vectors'):
    index.search(np.zeros((1, 16), np.float32), 2)


def test_folders_are_named_once(folders, tmp_path):
  assert joined_lib.names_of(['x/a', 'y/a', 'b']) == ['x/a', 'y/a', 'b']
  assert joined_lib.names_of(['x/a/data', 'y/b/data']) == ['a', 'b']
  with pytest.raises(ValueError, match='twice'):
    retrieval.open_index([folders[0], folders[0]])
  with pytest.raises(ValueError, match='embedder: 1'):
    retrieval.open_index(folders, embedder=['minilm'])
  with pytest.raises(FileNotFoundError, match='no index here'):
    retrieval.open_index([folders[0], tmp_path])


@pytest.fixture(scope='module')
def blocks(tmp_path_factory):
  """Blocks of two folders, joined, and of one folder with all documents."""
  root, rng = tmp_path_factory.mktemp('blocks'), np.random.default_rng(0)
  rows = tiny_blocks.documents(40, rng)
  parts = [rows[:25], rows[25:]]
  made = [
    tiny_blocks.make(root / name, rng, given=part).blocks
    for name, part in zip('pq', parts, strict=True)
  ]
  whole = tiny_blocks.make(root / 'whole', rng, given=rows).blocks
  return joined_lib.JoinedBlocks(made, ['p', 'q']), whole


def test_joined_blocks_equal_those_of_one_folder(blocks):
  joined, whole = blocks
  ids = np.append(np.arange(len(whole)), -1)
  assert joined.num_blocks == len(whole)
  for name in ('texts', 'titles', 'search_texts', 'metadata'):
    assert getattr(joined, name)(ids) == getattr(whole, name)(ids)
  for name in ('documents', 'hashes'):
    have, expected = (getattr(x, name)(ids[:-1]) for x in blocks)
    np.testing.assert_array_equal(have, expected)
  for name in ('gather', 'gather_titles'):
    for have, expected in zip(
      *(getattr(x, name)(ids[:, None], 20) for x in blocks), strict=True
    ):
      np.testing.assert_array_equal(have, expected)
  names = [x.partition(':')[2] for x in joined.names(ids[:-1])]
  assert names == whole.names(ids[:-1])
  assert {x[0] for x in joined.names(ids[:-1])} == {'p', 'q'}


@pytest.mark.parametrize('kind', ['bm25', 'tfidf'])
def test_words_count_over_all_folders(blocks, kind):
  indices = [text_index.TextIndices(x.path.parent, x) for x in blocks]
  have, expected = (
    x.words(kind).search(['The mill in Paris', 'crown 1066'], 30)
    for x in indices
  )
  np.testing.assert_array_equal(have, expected)
  # Each folder's index is its own, which searches of it alone read.
  assert [*blocks[0].parts[1].path.parent.glob(f'sparse-{kind}-*')]


def test_colbert_searches_all_folders(blocks, monkeypatch):
  monkeypatch.setattr(colbert, 'load', lambda path: tiny_encoder.Words())
  joined, _ = blocks
  indices = text_index.TextIndices(joined.path.parent, joined, colbert='run')
  tokens = indices.tokens()
  mask, asked = np.arange(len(joined)) % 3 > 0, np.array(['mill Rome'], object)
  for index in (tokens, tokens.unpruned()):
    ids, scores = index.search(asked, 12, subset_lib.Subset(mask))
    assert mask[ids].all() and (np.diff(scores) <= 0).all()
    for part, span in zip(index.parts, index.spans, strict=True):
      here = np.isin(ids[0], span)
      some = subset_lib.Subset(mask[span.start : span.stop])
      own, values = part.search(asked, 12, some)
      assert (ids[0][here] == own[0][: here.sum()] + span.start).all()
      np.testing.assert_array_equal(scores[0][here], values[0][: here.sum()])
  tokens.parts[1].encoder.fingerprint = 'other words'
  with pytest.raises(ValueError, match='colbert_index.model'):
    type(tokens)(tokens.parts)
