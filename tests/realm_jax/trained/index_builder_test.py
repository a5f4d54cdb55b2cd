# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A run that starts from another one takes its index over; nothing is embedded."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.engine import checkpoint_writer
from realm_jax.trained import embedders
from retrieval.index import index_versions
from retrieval.nn import sharding
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_open_qa.make_data(tmp_path_factory.mktemp('sources') / 'data')


@pytest.fixture(scope='module')
def start(data, tmp_path_factory):
  """A run with the index of its own parameters, and these."""
  run = tmp_path_factory.mktemp('run')
  config = tiny_open_qa.get_config(data)
  trained = tiny_open_qa.reader_of(config, tiny_realm.data_of(config))
  trained = dataclasses.replace(trained, step=5, block_step=5)
  _save(run, trained, '')
  trained.as_realm().open_index(run / 'index').version.close()
  return run, trained


def _save(run, trained, index_version):
  checkpoint_writer.save_params(
    str(run),
    trained.params,
    config=dataclasses.asdict(trained.config),
    step=5,
    index_version=index_version,
  )


class NoEmbedder:
  """Stands for a block embedder where nothing is to be embedded."""

  def __init__(self, *unused, **options):
    pass

  def __call__(self, *unused):
    raise AssertionError('a block was embedded')


def _start(monkeypatch, workdir, data, arg='test', **fields):
  """The version that serves the first batch, opened."""
  monkeypatch.setattr(embedders, 'BlockEmbedder', NoEmbedder)
  config = tiny_open_qa.get_config(data, arg, **fields)
  task = tiny_open_qa.task(config, workdir, jax.devices()[:1])
  params = sharding.unbox(task.init(jax.random.key(1)))
  try:
    task.index_refresher.start(0, params, '')
    return task.index_refresher.serving(None).version
  finally:
    task.index_refresher.close()


def _vectors(run):
  folder = index_versions.VersionFolder(run / 'index')
  version = folder.open(folder.latest())
  found = np.asarray(version.vectors[:])
  version.close()
  return found


@pytest.mark.parametrize('shared', [True, False])
def test_an_index_of_the_same_embedder_serves(
  start, data, tmp_path, monkeypatch, shared
):
  run, _ = start
  fields = {'model.share_embedders': shared, 'realm_from': str(run)}
  version = _start(monkeypatch, tmp_path, data, **fields)
  assert version.step == 0 and version.path.parent == tmp_path / 'index'
  np.testing.assert_array_equal(version.vectors[:], _vectors(run))
  names = ['embedder'] if shared else ['block_embedder', 'query_embedder']
  assert sorted(version.params) == names
  queries = np.asarray(version.vectors[:4])
  ids, _ = version.index.searcher.search(queries, 3)
  folder = index_versions.VersionFolder(run / 'index')
  old = folder.open(folder.latest())
  want, _ = old.index.searcher.search(queries, 3)
  np.testing.assert_array_equal(ids, want)
  old.close()
  version.close()


@pytest.mark.parametrize(
  'fields', [{'embedder.activation': 'relu'}, {'model.pooling': 'cls'}]
)
def test_other_parameters_or_settings_embed(
  start, data, tmp_path, monkeypatch, fields
):
  run, _ = start
  fields = fields | {'realm_from': str(run)}
  with pytest.raises(AssertionError, match='a block was embedded'):
    _start(monkeypatch, tmp_path, data, **fields)


def test_vectors_of_another_embedder_are_kept(
  start, data, tmp_path, monkeypatch
):
  _, trained = start
  other = jax.tree.map(lambda x: x + 0.01, trained.params)
  run = tmp_path / 'run'
  made = dataclasses.replace(trained, block_params=other, block_step=0)
  index = made.as_realm().open_index(run / 'index').version
  _save(run, trained, index.name)
  index.close()
  fields = {'realm_from': str(run)}
  version = _start(monkeypatch, tmp_path / 'new', data, **fields)
  np.testing.assert_array_equal(version.vectors[:], _vectors(run))
  jax.tree.map(
    np.testing.assert_array_equal,
    version.params,
    {'embedder': other['embedder']},
  )
  version.close()
  with pytest.raises(AssertionError, match='a block was embedded'):
    _start(monkeypatch, tmp_path / 'blocks', data, 'blocks_test', **fields)
  (run / 'index').rename(run / 'gone')
  with pytest.raises(FileNotFoundError, match='no index version here'):
    _start(monkeypatch, tmp_path / 'newer', data, **fields)
