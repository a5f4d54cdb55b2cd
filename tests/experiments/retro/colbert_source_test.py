# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors by late interaction: prepared, searched, sampled and updated."""

import dataclasses

import numpy as np
import pytest

from experiments.retro import (
  prepare as retro_prepare,
  update as retro_update,
)
from retrieval.text import corpus as corpus_lib
from retro_jax.data import folder as retro_data
from retro_jax.trained import language_model, loading
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config
from tests.retrieval.index import text_index_test
from tests.retrieval.search import tiny_encoder

words = text_index_test.words


@pytest.fixture(scope='module')
def run(root, tmp_path_factory):
  """A run that was trained with other neighbors, and its data."""
  workdir = tiny_run.make_run(tmp_path_factory.mktemp('run'), root)
  return workdir, retro_data.DataFolder(root, 'colbert')


@pytest.fixture
def config():
  return _config('runs/colbert')


def _config(model):
  fields = {'neighbors.stored': 3, 'neighbors.colbert': model}
  return tiny_config.tiny(**fields)


@pytest.fixture
def data(run, tmp_path):
  """The run's data without an index."""
  for path in run[1].root.iterdir():
    (tmp_path / path.name).symlink_to(path)
  return dataclasses.replace(run[1], root=tmp_path)


def _texts(data):
  chunks = data.chunks('train')
  return chunks.texts(np.arange(chunks.num_chunks))


def test_neighbors_are_prepared_and_read(config, data, words, run):
  assert retro_prepare.embed(config, data) == [
    ('vectors', 'not read by the source colbert')
  ]
  count = data.chunks('train').num_chunks
  rows = retro_prepare.build_index(config, data)
  assert rows == [('chunks in colbert', f'{count:,}')]
  assert words.encoded[-count:] == _texts(data)
  retro_prepare.find_neighbors(config, data)
  for split in ('train', 'valid'):
    chunks, train = data.chunks(split), data.chunks('train')
    assert data.neighbors_path(split).name == f'neighbors_colbert-{split}'
    ids = data.neighbors(split).ids(np.arange(chunks.num_chunks))
    own = chunks.document_hashes(np.arange(chunks.num_chunks))
    assert (ids >= 0).all()
    assert (train.document_hashes(ids) != own[:, None]).all()
  said = dict(retro_prepare.verify(data))
  [colbert] = data.root.glob('colbert-*')
  assert said[f'checksums, {colbert.name}/tokens'] == 'right'
  assert said[f'checksums, {colbert.name}/codec'] == 'right'
  # Without a name, the model is that of the index.
  trained = language_model.load(run[0], str(data.root), source='colbert')
  assert not trained.config.neighbors.colbert
  found = trained.data.datastore.lookup(trained.config).retrieve(
    _texts(data)[:4], 2
  )
  assert all(x.scores[0] > 0.9 * tiny_encoder.Q for x in found)
  (sample,) = trained.sample('river queen tensor apple moon', max_new_tokens=4)
  assert sample.chunks[0].ids
  assert 'inner products' in sample.chunks[0].unit


def test_an_update_encodes_all_chunks_again(config, data, words, tmp_path):
  retro_prepare.build_index(config, data)
  root = tmp_path / 'new'
  document = corpus_lib.Document('n', 'Title n', 'zq zq moon zq zq')
  retro_update.change(config, data, root, [document], ['d3'])
  new = retro_data.DataFolder(root, 'colbert')
  before, after = {*_texts(data)}, _texts(new)
  fresh = [text for text in after if text not in before]
  assert words.encoded[-len(after) :] == after and fresh
  # The stage finds it whole, and the new chunks are found.
  words.encoded.clear()
  retro_prepare.build_index(config, new)
  assert not words.encoded
  ids, scores = new.datastore.retriever(config).search([fresh[0], ' '], 1)
  assert new.chunks('train').titles(ids[0]) == ['Title n']
  assert ids[1] == -1 and scores[0] > 0.9 * tiny_encoder.Q


def test_a_command_names_the_models_of_a_run():
  trained = _config('runs/colbert')
  embedder = retro_data.Embedder(path='e')
  for model, want in (('', 'runs/colbert'), ('c', 'c')):
    given = dataclasses.replace(_config(model), embedder=embedder)
    found = loading.merged(trained, given)
    assert found.embedder.path == 'e' and found.neighbors.colbert == want
