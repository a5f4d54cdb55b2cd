# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A datastore that changes under a trained RETRO, and what a sample reads then."""

import shutil

import numpy as np
import pytest

from experiments.retro import prepare, update as retro_update
from retrieval.index import (
  published_index as index_lib,
  vectors as vectors_lib,
)
from retrieval.text import corpus as corpus_lib, tokens as tokens_lib
from retro_jax.data import datastore as datastore_lib, folder as retro_data
from retro_jax.trained import language_model
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config
from tests.retrieval.index import neighbors_test
from tests.retrieval.store import other_writer
from tests.retro_jax.data import tiny_data

NEW = 'x moon x moon x moon'


class Letters(neighbors_test.LetterEmbedder):
  """A frozen embedder that remembers what it was asked."""

  def __init__(self):
    super().__init__()
    self.texts = []

  def embed_texts(self, texts, progress=None):
    self.texts += texts
    return super().embed_texts(texts)

  embed_queries = embed_texts


@pytest.fixture(scope='module')
def embedder():
  return Letters()


@pytest.fixture(scope='module')
def run(tmp_path_factory, embedder):
  """A run, its data with vectors and an index."""
  root = tiny_data.make(tmp_path_factory.mktemp('data'), metadata='year')
  data = retro_data.DataFolder(root)
  vectors = vectors_lib.build_vector_store(
    root / 'vectors-train', data.chunks('train'), embedder
  )
  index_lib.build_index(
    root / 'index',
    vectors.array('vectors'),
    vectors.fingerprint,
    index_lib.IndexConfig(searcher='exact'),
  )
  workdir = tmp_path_factory.mktemp('run')
  return tiny_run.make_run(workdir, root, init_scale=0.3), data


@pytest.fixture(autouse=True)
def frozen(monkeypatch, embedder):
  monkeypatch.setattr(datastore_lib, 'load_embedder', lambda config: embedder)
  embedder.texts.clear()


def _config(**fields):
  return tiny_config.tiny(**fields | {'index.searcher': 'exact'})


def _update(run, root, documents=(), delete=()):
  workdir, data = run
  counts = retro_update.change(_config(), data, root, documents, delete)
  return counts, retro_data.DataFolder(root)


def _texts(data, split='train'):
  chunks = data.chunks(split)
  ids = np.arange(chunks.num_chunks)
  titles = [data.tokens.title(int(d)) for d in chunks.documents(ids)]
  return list(zip(titles, chunks.texts(ids), strict=True))


def _document(name, text=NEW):
  return corpus_lib.Document(name, f'Title {name}', text)


def _held_out(data):
  """Ids of a held-out and of a training document."""
  names = [data.tokens.document_id(i) for i in range(data.tokens.num_documents)]
  held = tokens_lib.in_split(data.tokens.id_hash[:], 'valid', 0.3)
  return names[int(np.argmax(held))], names[int(np.argmin(held))]


def test_only_new_chunks_are_embedded(run, embedder, tmp_path):
  _, old = run
  held, trained = _held_out(old)
  before = _texts(old)
  # 'n1' would be held out by its hash, as some of these names are.
  new = [_document(f'n{i}', f'{NEW} {i}') for i in range(8)]
  counts, data = _update(
    run, tmp_path / 'd', [*new, _document(held)], [trained]
  )
  assert counts['documents added'] == 8
  assert counts['documents changed'] == counts['documents deleted'] == 1
  after = _texts(data)
  gone = old.tokens.title(
    [old.tokens.document_id(i) for i in range(30)].index(trained)
  )
  assert not [text for title, text in after if title == gone]
  rest = [pair for pair in before if pair[0] != gone]
  assert [p for p in after if p in set(rest)] == rest
  assert {title for title, _ in after} >= {f'Title n{i}' for i in range(8)}
  assert f'Title {held}' in {title for title, _ in after}
  assert not {t for t, _ in _texts(data, 'valid')} & {d.title for d in new}
  # What was there is copied, the rest embedded, in the right places.
  known = {text for _, text in before}
  fresh = [text for _, text in after if text not in known]
  assert sorted(embedder.texts) == sorted(fresh) and fresh
  assert counts['chunks embedded'] == len(fresh)
  assert counts['chunks reused'] == len(after) - len(fresh)
  np.testing.assert_array_equal(
    data.datastore.vectors('train').array('vectors')[:],
    Letters().embed_texts([text for _, text in after]),
  )


def test_metadata_follow_their_documents(run, tmp_path):
  _, old = run
  held, trained = _held_out(old)
  new, changed = (
    corpus_lib.Document(name, 'T', NEW, {'year': year, 'other': ['no']})
    for name, year in (('new', 1900), (held, 1901))
  )
  _, data = _update(run, tmp_path / 'd', [new, changed], [trained])
  tokens = data.tokens
  rows = tokens.metadata.rows(range(tokens.num_documents))
  names = map(tokens.document_id, range(tokens.num_documents))
  expected = {f'd{i}': 2000 + i for i in range(30)}
  expected |= {'new': 1900, held: 1901}
  del expected[trained]
  assert {x: y['year'] for x, y in zip(names, rows, strict=True)} == expected
  assert tokens.metadata.names == ('year',)
  wrong = corpus_lib.Document('new', 'T', NEW, {'year': [1]})
  with pytest.raises(ValueError, match='year'):
    _update(run, tmp_path / 'wrong', [wrong])


def test_the_next_sample_reads_the_new_document(run, tmp_path):
  workdir, old = run
  prompt = f'Title n0\n\n{NEW}'
  before = language_model.load(workdir)
  settings = {'num_samples': 1, 'max_new_tokens': 12, 'temperature': 0.0}
  (first,) = before.sample(prompt, **settings)
  _, data = _update(run, tmp_path / 'd', [_document('n0')])
  after = language_model.load(workdir, str(data.root))
  (second,) = after.sample(prompt, **settings)

  def titles(sample):
    return {title for chunk in sample.chunks for title in chunk.titles}

  assert 'Title n0' in titles(second) and 'Title n0' not in titles(first)
  assert second.text.startswith(prompt)
  # Deleted again, it is read no more, and the sample is the first one.
  retro_update.change(_config(), data, tmp_path / 'e', delete=['n0'])
  again = language_model.load(workdir, str(tmp_path / 'e'))
  (third,) = again.sample(prompt, **settings)
  assert titles(third) == titles(first) and third.text == first.text
  assert _texts(again.data) == _texts(old)


def test_a_killed_update_goes_on(run, tmp_path, monkeypatch):
  documents = [_document('n0')]
  with monkeypatch.context() as patch:

    def killed(*unused, **unused_too):
      raise KeyboardInterrupt

    patch.setattr(retro_update.index_lib, 'build_index', killed)
    with pytest.raises(KeyboardInterrupt):
      _update(run, tmp_path / 'd', documents)
  counts, data = _update(run, tmp_path / 'd', documents)
  assert counts['chunks embedded'] == 0  # they stand already
  assert (
    data.datastore.index.vectors_fingerprint
    == data.datastore.vectors('train').fingerprint
  )


def test_bad_changes_are_refused(run, tmp_path):
  _, old = run
  for changes in (
    {},
    {'delete': ['nobody']},
    {'documents': [_document('a', ' ')]},
    {'documents': 2 * [_document('a')]},
  ):
    with pytest.raises(ValueError):
      _update(run, tmp_path / 'd', **changes)
  with pytest.raises(ValueError, match='old data folder'):
    _update(run, old.root, [_document('a')])
  assert not (tmp_path / 'd').exists()
  with other_writer.refuses(tmp_path / 'd', '.writer-data.lock'):
    _update(run, tmp_path / 'd', [_document('a')])
  _update(run, tmp_path / 'd', [_document('a')])
  with pytest.raises(ValueError, match='another corpus'):
    _update(run, tmp_path / 'd', [_document('b')])


def test_neighbors_do_not_depend_on_the_shards_of_an_index(tmp_path):
  stored = []
  for shards in (1, 3):
    root = tmp_path / f'{shards}' / 'data'
    root.mkdir(parents=True)
    tiny_data.make(root)
    for made in root.glob('neighbors-*'):
      shutil.rmtree(made)
    config = _config(**{'index.shards': shards, 'index.num_queries': 20})
    stages = prepare.Prepare(stages='vectors,index,neighbors')
    prepare.prepare(config, str(root.parent), stages)
    data = retro_data.DataFolder(root)
    stored.append([data.neighbors(x).store for x in ('train', 'valid')])
  assert data.datastore.index.searcher.num_shards == 3
  assert data.datastore.index.report['recall@10'] == 1
  for one, three in zip(*stored, strict=True):
    for name in ('ids', 'scores'):
      a, b = (np.asarray(x.array(name)[:]) for x in (one, three))
      np.testing.assert_array_equal(a, b)
    assert (a != -np.inf).any()
