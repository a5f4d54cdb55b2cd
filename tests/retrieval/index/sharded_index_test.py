# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds of shards: killed, damaged, of bad input, shared between processes."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from retrieval.index import published_index as index_lib, sharded_index
from retrieval.store import checksums, executors
from tests.retrieval.searchers import clusters
from tests.retrieval.store import tiny_stores


def rows(count=600):
  return np.random.default_rng(0).standard_normal((count, 8)).astype(np.float32)


def config(**fields):
  defaults = {'searcher': 'exact', 'num_queries': 20, 'shards': 6}
  return index_lib.IndexConfig(**defaults | fields)


def build(path, vectors=None, **fields):
  vectors = rows() if vectors is None else vectors
  return index_lib.build_index(path, vectors, 'v', config(**fields))


def _hashes(folder):
  found = tiny_stores.file_hashes(folder)
  del found[index_lib.MANIFEST]  # holds the building time
  return found


_BUILD = """
import os, pathlib, signal, sys
from retrieval.index import published_index as index_lib, sharded_index
from tests.retrieval.index import sharded_index_test as test
make = sharded_index._write_shard
def killed(draft, *arguments):
  make(draft, *arguments)
  if 'shard-000003' in draft.name:
    os.kill(os.getpid(), signal.SIGKILL)
sharded_index._write_shard = killed
test.build(pathlib.Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_build_continues_with_the_same_bytes(tmp_path, monkeypatch):
  path = tmp_path / 'index'
  died = subprocess.run([sys.executable, '-c', _BUILD, path]).returncode
  assert died == -signal.SIGKILL and not path.exists()
  (partial,) = tmp_path.glob('index.partial-*')
  assert not (partial / 'shard-000003').exists()
  inode = (partial / 'shard-000002' / 'searcher.json').stat().st_ino
  made, make = [], sharded_index._write_shard

  def watched(draft, *arguments):
    made.append(draft.name.split('.')[1])
    make(draft, *arguments)

  monkeypatch.setattr(sharded_index, '_write_shard', watched)
  build(path)
  assert made == ['shard-000003', 'shard-000004', 'shard-000005']
  assert (path / 'shard-000002' / 'searcher.json').stat().st_ino == inode
  assert not partial.exists()
  build(tmp_path / 'whole')
  assert _hashes(path) == _hashes(tmp_path / 'whole')
  one, two = (
    index_lib.open_index(tmp_path / x).fingerprint for x in ('index', 'whole')
  )
  assert one == two


def test_other_processes_build_the_same_bytes(tmp_path, monkeypatch):
  build(tmp_path / 'alone')
  monkeypatch.chdir(tmp_path)
  index_lib.build_index(
    'index', rows(), 'v', config(), executor=executors.Processes(2)
  )
  assert _hashes(tmp_path / 'index') == _hashes(tmp_path / 'alone')


def test_a_bad_row_is_named(tmp_path):
  bad = rows()
  bad[417, 3] = np.nan
  with pytest.raises(ValueError, match='Shard 4 of 6 in .*Database row 417'):
    build(tmp_path / 'index', bad)
  assert not (tmp_path / 'index').exists()


def test_shards_in_memory_are_those_of_the_last_call(tmp_path):
  path = tmp_path / 'index'
  first = build(path)
  again = build(path, shards_in_memory=2)
  assert again.fingerprint == first.fingerprint
  assert again.searcher.shards_in_memory == 2
  assert index_lib.open_index(path).searcher.shards_in_memory == 1
  with pytest.raises(ValueError, match='shards: expected 1, found 6'):
    build(path, shards=1)


@clusters.NEEDS_SCANN
def test_a_damaged_shard_names_its_file(tmp_path, monkeypatch):
  fields = {'searcher': 'scann', 'shards': 2, 'recall_floor': 0.0}
  path = build(tmp_path / 'index', rows(9000), **fields).path
  folder = path / 'shard-000001'
  file = max(folder.iterdir(), key=lambda f: f.stat().st_size)
  size = file.stat().st_size
  tiny_stores.flip(file, size // 2)
  with pytest.raises(ValueError, match=f'shard-000001/{file.name}: damaged'):
    index_lib.open_index(path)
  monkeypatch.setenv(checksums.VARIABLE, 'off')
  file.write_bytes(file.read_bytes()[: size // 2])
  searcher = index_lib.open_index(path).searcher
  with pytest.raises(ValueError, match='shard-000001'):
    searcher.search(rows(3), 2)
