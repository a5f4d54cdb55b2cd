# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO whose index is in shards finds and writes what one index gives."""

import shutil

import numpy as np
import pytest

from experiments.retro import prepare as retro_prepare
from retro_jax.data import datastore as datastore_lib, folder as retro_data
from tests.experiments.retro import update_test
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def embedder():
  return update_test.Letters()


@pytest.fixture(scope='module')
def folders(tmp_path_factory, embedder):
  """Data folders by their number of shards."""
  found = {}
  for shards in (1, 3):
    workdir = tmp_path_factory.mktemp('data')
    root = workdir / 'data'
    root.mkdir()
    tiny_data.make(root)
    for made in root.glob('neighbors-*'):
      shutil.rmtree(made)
    config = update_test._config(
      **{'index.shards': shards, 'index.num_queries': 20}
    )
    stages = retro_prepare.Prepare(stages='vectors,index,neighbors')
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(datastore_lib, 'load_embedder', lambda config: embedder)
      retro_prepare.prepare(config, str(workdir), stages)
    found[shards] = retro_data.DataFolder(root)
  return found


def test_neighbors_do_not_depend_on_the_shards(folders):
  one, three = (folders[n] for n in (1, 3))
  assert three.datastore.index.searcher.num_shards == 3
  assert three.datastore.index.report['recall@10'] == 1
  for split in ('train', 'valid'):
    stored = [x.neighbors(split).store for x in (one, three)]
    for name in ('ids', 'scores'):
      a, b = (np.asarray(x.array(name)[:]) for x in stored)
      np.testing.assert_array_equal(a, b)
    assert (a != -np.inf).any()
