# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Stores of a folder are compared with what they were made from."""

import numpy as np
import pytest

from retrieval.index import index as index_lib, vectors as vectors_lib
from retrieval.store import store_writer
from retro_jax.data import folder as folder_lib
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  tiny_data.make(root)
  data = folder_lib.DataFolder(root)
  for split in ('train', 'valid'):
    chunks = data.chunks(split)
    fields = {'chunks': chunks.fingerprint}
    path = root / f'vectors-{split}'
    writer = store_writer.StoreWriter(path, vectors_lib.KIND, fields)
    writer.write(0, {'vectors': np.eye(chunks.num_chunks, 4, dtype='float32')})
    writer.publish(1)
  config = index_lib.IndexConfig(searcher='exact')
  vectors = data.vectors('valid')
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
  getattr(swapped, kind)('valid')
  said = rf'{kind}-train: .*chunks-train is {data.chunks("train").fingerprint}'
  with pytest.raises(ValueError, match=said):
    getattr(swapped, kind)('train')


def test_an_index_of_other_vectors_is_refused(data):
  with pytest.raises(ValueError, match='index: of vectors .*vectors-train is'):
    _ = data.index
