# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One process prepares a folder."""

import numpy as np
import pytest

from experiments.engine import stages
from tests.retrieval.store import other_writer


def test_a_second_writer_is_refused(tmp_path):
  done = []
  work = [('work', lambda: done.append(1) or [])]
  with other_writer.refuses(tmp_path, '.writer-data.lock'):
    stages.run(work, tmp_path)
  stages.run(work, tmp_path)
  assert done == [1]


def test_a_store_without_its_manifest_is_named(tmp_path):
  (tmp_path / 'vectors-train').mkdir()
  np.save(tmp_path / 'vectors-train' / 'vectors-000000.npy', np.zeros(3))
  with pytest.raises(ValueError, match=r'vectors-train: manifest\.json'):
    stages.verify_stores(tmp_path)


def test_an_index_with_arrays_is_no_store(tmp_path):
  (tmp_path / 'index').mkdir()
  np.save(tmp_path / 'index' / 'dataset.npy', np.zeros(3))
  (tmp_path / 'index' / 'index.json').write_text('{}')
  assert stages.verify_stores(tmp_path) == []
