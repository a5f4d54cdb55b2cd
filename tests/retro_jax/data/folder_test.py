# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores of a folder are compared with what they were made from."""

import numpy as np
import pytest

from retrieval.index import (
  published_index as index_lib,
  vectors as vectors_lib,
)
from retrieval.search import (
  queries as queries_lib,
  rerank,
  retriever as retriever_lib,
)
from retrieval.store import shards
from retrieval.text import chunks as chunks_lib
from retro_jax.data import folder as folder_lib
from retro_jax.trained import loading
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  tiny_data.make(root)
  data = folder_lib.DataFolder(root)
  for split in ('train', 'valid'):
    chunks = data.chunks(split)
    fields = {'passages': chunks.fingerprint}
    path = root / f'vectors-{split}'
    writer = shards.StoreWriter(path, vectors_lib.KIND, fields)
    vectors = np.eye(chunks.num_chunks, 4, dtype='float32')
    shards.write_shard(writer.folder, 0, {'vectors': vectors})
    writer.publish(1)
  config = index_lib.IndexConfig(searcher='exact')
  vectors = data.datastore.vectors('valid')
  index_lib.build_index(
    root / 'index', vectors.array('vectors'), vectors.fingerprint, config
  )
  return data


@pytest.mark.parametrize('kind', ['vectors', 'neighbors'])
def test_stores_of_other_chunks_are_refused(data, tmp_path, kind):
  for name, source in (
    ('tokens', 'tokens'),
    ('chunks-train', 'chunks-train'),
    ('chunks-valid', 'chunks-valid'),
    (f'{kind}-train', f'{kind}-valid'),
    (f'{kind}-valid', f'{kind}-valid'),
  ):
    (tmp_path / name).symlink_to(data.path(source))
  swapped = folder_lib.DataFolder(tmp_path)
  stores = swapped.datastore.vectors if kind == 'vectors' else swapped.neighbors
  stores('valid')
  print_of_train = data.chunks('train').fingerprint
  said = rf"{kind}-train: made of others .*expected '{print_of_train}'"
  with pytest.raises(ValueError, match=said):
    stores('train')


def test_an_index_of_other_vectors_is_refused(data):
  with pytest.raises(ValueError, match='index: of vectors .*vectors-train is'):
    _ = data.datastore.index


def _config(root, **neighbors):
  neighbors = folder_lib.Neighbors(**neighbors)
  return loading.RunConfig(data_dir=str(root), neighbors=neighbors)


class _Shortest:
  fingerprint, unit = 'shortest', 'letters'

  def score(self, queries, passages):
    return [-np.array([len(x) for x in row], np.float32) for row in passages]


def test_a_reranked_source_has_neighbors_of_its_own(data, monkeypatch):
  config = _config(data.root, source='random')
  plain = folder_lib.DataFolder.of(config, '')
  assert plain.neighbors_path('valid').name == 'neighbors_random-valid'
  assert isinstance(plain.datastore.retriever(config), retriever_lib.Random)
  drawn, _ = plain.datastore.retriever(config).search(
    queries_lib.ChunkQueries(plain.chunks('train'), np.arange(4)), 9
  )
  unit = plain.datastore.retriever(config).unit
  config = _config(
    data.root, source='random', reranker='runs/cross-1.2', candidates=9
  )
  found = folder_lib.DataFolder.of(config, '')
  path = found.neighbors_path('valid')
  assert path.name == 'neighbors_random+cross-1_2-valid'
  monkeypatch.setattr(rerank, 'load', lambda path: _Shortest())
  retriever = found.datastore.retriever(config)
  assert isinstance(retriever, rerank.Reranked)
  assert retriever.unit == 'letters' != unit
  train = found.chunks('train')
  queries = queries_lib.ChunkQueries(train, np.arange(4))
  ids, _ = retriever.search(queries, 2)
  for row, candidates in zip(ids, drawn, strict=True):
    texts = train.full_texts(candidates)
    order = np.argsort([len(text) for text in texts], kind='stable')
    assert row.tolist() == candidates[order][:2].tolist()


def test_filtered_neighbors_have_folders_of_their_own(tmp_path):
  data = folder_lib.DataFolder(tiny_data.make(tmp_path, metadata='year'))
  where = "{'year': (None, 2009)}"
  config = _config(data.root, source='bm25', where=where)
  found = folder_lib.DataFolder.of(config, '')
  path = found.neighbors_path('valid')
  assert path.name.startswith('neighbors_bm25@') and path != data.root
  train = found.chunks('train')
  retriever = found.datastore.retriever(config)
  queries = queries_lib.ChunkQueries(train, np.arange(len(train)))
  ids, _ = retriever.search(queries, 3)
  there, years = ids[ids >= 0], [x['year'] for x in train.metadata(range(9))]
  assert {x['year'] for x in train.metadata(there)} <= {*range(2000, 2010)}
  assert len(there) and years[0] == 2000
  own = train.document_hashes(np.arange(len(train)))[:, None]
  of_own = train.document_hashes(np.maximum(ids, 0)) == own
  assert not (of_own & (ids >= 0)).any()
  for where in ("{'year': 1}", "{'month': 1}", 'year'):
    with pytest.raises(ValueError, match='where'):
      found.datastore.retriever(_config(data.root, source='bm25', where=where))


def test_an_index_of_words_may_hold_titles_and_continuations(tmp_path):
  data = folder_lib.DataFolder(tiny_data.make(tmp_path))
  train = data.chunks('train')
  own = chunks_lib.TitledChunks(train.path, train.tokens)
  ids = np.array([0, 5])
  pairs = zip(train.titles(ids), train.full_texts(ids), strict=True)
  assert own.search_texts(ids) == [f'{title}\n{text}' for title, text in pairs]
  assert own.texts(ids) == train.texts(ids)
  config, plain = (
    _config(tmp_path, source='bm25', titled=x) for x in (True, False)
  )
  titled, words = (
    data.datastore.text_indices(x).words_path('bm25') for x in (config, plain)
  )
  assert titled != words
  found, _ = (
    data.datastore.text_indices(config)
    .words('bm25')
    .search([train.titles([5])[0]], 1)
  )
  assert train.titles(found[0]) == train.titles([5])
