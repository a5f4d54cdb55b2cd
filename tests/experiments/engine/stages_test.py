# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One process prepares each share of a folder."""

import ml_collections

from experiments.engine import stages
from tests.retrieval.store import other_writer


def _run(root, process_index):
  done = []
  prepare = {'process_index': process_index, 'process_count': 2}
  config = ml_collections.ConfigDict({'prepare': prepare})
  stages.run(config, [('work', lambda: done.append(1) or [])], root)
  return done


def test_each_process_has_its_share(tmp_path):
  with other_writer.refuses(tmp_path, '.writer-data-1.lock'):
    assert _run(tmp_path, 0) == [1]
    _run(tmp_path, 1)
  assert _run(tmp_path, 1)
