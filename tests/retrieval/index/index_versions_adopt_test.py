# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Adopted index versions search like the originals and appear whole."""

import dataclasses
import os
import shutil

import numpy as np
import pytest

from retrieval.index import index_versions, snapshots
from tests.retrieval.index import index_versions_test
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import tiny_blocks

CONFIG = index_versions_test.CONFIG
PARAMS = index_versions_test.PARAMS


@pytest.fixture(scope='module')
def blocks(tmp_path_factory):
  root = tmp_path_factory.mktemp('blocks')
  return tiny_blocks.make(root, np.random.default_rng(0)).blocks


@pytest.fixture
def source(blocks, tmp_path):
  """A folder with a version of step 300."""
  folder = index_versions.VersionFolder(tmp_path / 'source')
  folder.build(300, PARAMS, blocks, index_versions_test.embed, CONFIG)
  return folder


def _search(folder, name, blocks):
  version = folder.open(name, blocks)
  queries = version.vectors[:5]
  ids, scores = version.index.searcher.search(queries, 4)
  version.close()
  return ids, scores


def test_a_version_serves_elsewhere_as_it_did(blocks, source, tmp_path):
  folder = index_versions.VersionFolder(tmp_path / 'new')
  found = folder.adopt(0, PARAMS, blocks, source.root, CONFIG)
  assert found == index_versions.version_name(0, PARAMS, blocks)
  assert folder.names() == [found]
  [old] = source.names()
  want = _search(source, old, blocks)
  shards = [*(folder.root / found / 'vectors').glob('*.npy')]
  assert shards and all(os.stat(file).st_nlink == 2 for file in shards)
  for part in ('vectors', 'index'):
    have = tiny_stores.file_hashes(folder.root / found / part)
    assert have == tiny_stores.file_hashes(source.root / old / part)
  # It stands by itself once the other run is gone.
  shutil.rmtree(source.root)
  for have, right in zip(_search(folder, found, blocks), want, strict=True):
    np.testing.assert_array_equal(have, right)
  version = folder.open(found, blocks)
  assert version.step == 0
  np.testing.assert_array_equal(
    version.params['embedder']['dense']['kernel'], np.eye(3)
  )
  version.close()


def test_other_parameters_or_blocks_are_not_taken(blocks, source, tmp_path):
  folder = index_versions.VersionFolder(tmp_path / 'new')
  other = tiny_blocks.make(tmp_path / 'o', np.random.default_rng(3)).blocks
  params = {'embedder': {'dense': {'kernel': 2 * np.eye(3, dtype=np.float32)}}}
  for given in ((params, blocks), (PARAMS, other)):
    found = folder.adopt(0, *given, source.root, CONFIG)
    assert found is None
  nowhere = tmp_path / 'nowhere'
  assert not folder.adopt(0, PARAMS, blocks, nowhere, CONFIG)
  assert folder.names() == []


def test_what_embeds_blocks_decides(blocks, source, tmp_path):
  folder = index_versions.VersionFolder(tmp_path / 'new')
  params = PARAMS | {'query_embedder': np.ones(2, np.float32)}
  given = (0, params, blocks, source.root, CONFIG)
  assert folder.adopt(*given) is None
  name = folder.adopt(*given, part=lambda tree: tree['embedder'])
  assert name == index_versions.version_name(0, params, blocks)
  version = folder.open(name, blocks)
  assert version.params_fingerprint == snapshots.fingerprint(params)
  np.testing.assert_array_equal(version.params['query_embedder'], np.ones(2))
  version.close()


def test_killed_half_way_leaves_nothing_published(
  blocks, source, tmp_path, monkeypatch
):
  folder = index_versions.VersionFolder(tmp_path / 'new')
  given = (0, PARAMS, blocks, source.root, CONFIG)
  link, done = os.link, []

  def link_and_die(old, new):
    if len(done) == 2:
      raise KeyboardInterrupt
    done.append(new)
    link(old, new)

  with monkeypatch.context() as patch:
    patch.setattr(os, 'link', link_and_die)
    with pytest.raises(KeyboardInterrupt):
      folder.adopt(*given)
  assert len(done) == 2 and folder.names() == []
  name = folder.adopt(*given)
  assert folder.names() == [name]
  assert not [*folder.root.glob('.building-*')]
  folder.open(name, blocks).close()


def test_an_index_of_other_settings_is_built_of_the_vectors(
  blocks, source, tmp_path
):
  folder = index_versions.VersionFolder(tmp_path / 'new')
  settings = dataclasses.replace(CONFIG, metric='squared_l2')
  name = folder.adopt(0, PARAMS, blocks, source.root, settings)
  version = folder.open(name, blocks)
  assert version.index.searcher.metric == 'squared_l2'
  version.close()


def test_a_version_is_held_while_it_is_copied(
  blocks, source, tmp_path, monkeypatch
):
  folder = index_versions.VersionFolder(tmp_path / 'new')
  [old] = source.names()
  link = os.link

  def remove_and_link(given, new):
    source.remove_old(newest=0)
    link(given, new)

  monkeypatch.setattr(os, 'link', remove_and_link)
  folder.adopt(0, PARAMS, blocks, source.root, CONFIG)
  assert source.names() == [old]
  source.remove_old(newest=0)
  assert source.names() == []
