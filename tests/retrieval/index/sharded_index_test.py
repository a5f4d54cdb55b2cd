# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds of shards: killed, damaged, of bad input, shared between processes."""

import concurrent.futures
import os
import pathlib
import pickle
import signal
import subprocess
import sys

import cloudpickle
import numpy as np
import pytest

from retrieval import searchers
from retrieval.index import index as index_lib, sharded_index
from retrieval.searchers import partition, search_tasks, sharded
from retrieval.store import executors, manifests, verification

ROOT = pathlib.Path(__file__).resolve().parents[3]


def rows(count=600):
  return np.random.default_rng(0).standard_normal((count, 8)).astype(np.float32)


def config(**fields):
  defaults = {'searcher': 'exact', 'num_queries': 20, 'shards': 6}
  return index_lib.IndexConfig(**defaults | fields)


def build(path, vectors=None, **fields):
  vectors = rows() if vectors is None else vectors
  return index_lib.build_index(path, vectors, 'v', config(**fields))


def index_fields(path):
  return manifests.read_json(path / index_lib.MANIFEST)['fields']


def _bytes(folder):
  return {
    str(f.relative_to(folder)): f.read_bytes()
    for f in folder.rglob('*')
    if f.is_file() and f.name != index_lib.MANIFEST
  }


_BUILD = """
import os, pathlib, signal, sys
from retrieval.index import index as index_lib, sharded_index
sys.path.insert(0, {tests!r})
import sharded_index_test as test
make = sharded_index._write_shard
def killed(draft, *arguments):
  make(draft, *arguments)
  if 'shard-000003' in draft.name:
    os.kill(os.getpid(), signal.SIGKILL)
sharded_index._write_shard = killed
test.build(pathlib.Path(sys.argv[1]), searcher=sys.argv[2], shard_by=sys.argv[3])
"""


@pytest.mark.parametrize(
  ('kind', 'by'), [('exact', 'rows'), ('exact', 'centroid'), ('int8', 'rows')]
)
def test_a_killed_build_continues_with_the_same_bytes(
  tmp_path, monkeypatch, kind, by
):
  path, fields = tmp_path / 'index', {'searcher': kind, 'shard_by': by}
  code = _BUILD.format(tests=str(pathlib.Path(__file__).parent))
  died = subprocess.run(
    [sys.executable, '-c', code, path, kind, by], cwd=ROOT
  ).returncode
  assert died == -signal.SIGKILL and not path.exists()
  (partial,) = tmp_path.glob('index.partial-*')
  assert sharded_index.missing(partial) == [3, 4, 5]
  inode = (partial / 'shard-000002' / 'searcher.json').stat().st_ino
  made, make = [], sharded_index._write_shard

  def watched(draft, *arguments):
    made.append(draft.name.split('.')[1])
    make(draft, *arguments)

  monkeypatch.setattr(sharded_index, '_write_shard', watched)
  build(path, **fields)
  assert made == ['shard-000003', 'shard-000004', 'shard-000005']
  assert (path / 'shard-000002' / 'searcher.json').stat().st_ino == inode
  assert not partial.exists()
  build(tmp_path / 'whole', **fields)
  assert _bytes(path) == _bytes(tmp_path / 'whole')
  one, two = (
    index_lib.fingerprint_of(tmp_path / x) for x in ('index', 'whole')
  )
  assert one == two


class _Backwards(executors.Remote):
  """Ends the last task first, and pickles what goes to other processes."""

  def run(self, name, set_up, calls):
    del name
    task = pickle.loads(cloudpickle.dumps(set_up))()
    for arguments in reversed(list(calls)):
      yield task(*arguments)


@pytest.mark.parametrize('of_blocks', [1, 2])
def test_tasks_that_end_in_any_order_leave_the_same_bytes(
  tmp_path, monkeypatch, of_blocks
):
  """Rows whose nearest shards are full depend on the order of the rows."""
  monkeypatch.setattr(partition, 'CAPACITY', 1.0)
  monkeypatch.setattr(partition, '_BLOCK_BYTES', 100 * 8 * (8 + 6))
  build(tmp_path / 'alone', shard_by='centroid')
  monkeypatch.setattr(search_tasks, '_FEW_ROWS', 0)
  monkeypatch.setattr(sharded_index, '_TASK_BLOCKS', of_blocks)
  monkeypatch.setattr(partition, 'NUM_NEAREST', 1)
  index_lib.build_index(
    tmp_path / 'index',
    rows(),
    'v',
    config(shard_by='centroid'),
    executor=_Backwards(),
  )
  assert _bytes(tmp_path / 'index') == _bytes(tmp_path / 'alone')


def test_a_partition_that_was_ended_continues(tmp_path, monkeypatch):
  monkeypatch.setattr(partition, '_BLOCK_BYTES', 100 * 8 * (8 + 6))
  monkeypatch.setattr(sharded_index, '_TASK_BLOCKS', 2)
  fields = {'shard_by': 'centroid'}
  build(tmp_path / 'alone', **fields)
  order, asked = partition.order, []

  def ended(rows, *arguments, **settings):
    if len(asked) == 3:
      raise KeyboardInterrupt
    asked.append(len(rows))
    return order(rows, *arguments, **settings)

  monkeypatch.setattr(partition, 'order', ended)
  with pytest.raises(KeyboardInterrupt):
    build(tmp_path / 'index', **fields)
  (begun,) = tmp_path.glob('index.partial-*-begun')
  assert [x.name for x in begun.glob('nearest-*')] == ['nearest-0.npy']
  asked[:] = [0] * 4
  build(tmp_path / 'index', **fields)
  assert asked[4:] == [100] * 4  # those of the tasks 1 and 2
  assert _bytes(tmp_path / 'index') == _bytes(tmp_path / 'alone')


def test_a_plan_that_was_ended_before_its_last_step_continues(
  tmp_path, monkeypatch
):
  fields = index_fields(build(tmp_path / 'alone', shard_by='centroid').path)
  path, publish = tmp_path / 'index', sharded_index.store.publish_folder

  def ended(draft, folder):
    if draft.name.endswith('-begun'):
      raise KeyboardInterrupt
    return publish(draft, folder)

  monkeypatch.setattr(sharded_index.store, 'publish_folder', ended)
  with pytest.raises(KeyboardInterrupt):
    sharded_index.plan(path, rows(), fields)
  assert not sharded_index.building(path, fields).exists()
  monkeypatch.undo()
  monkeypatch.setattr(sharded_index, '_partition', None)  # it is done
  build(path, shard_by='centroid')
  assert _bytes(path) == _bytes(tmp_path / 'alone')
  assert not [*tmp_path.glob('*-begun')]


def test_two_plans_at_once_give_one(tmp_path, monkeypatch):
  fields = index_fields(build(tmp_path / 'alone', shard_by='centroid').path)
  monkeypatch.setattr(partition, '_BLOCK_BYTES', 10 * 8 * (8 + 6))
  monkeypatch.setattr(sharded_index, '_TASK_BLOCKS', 1)
  planned, partitioned = [], sharded_index._partition

  def counted(*arguments):
    planned.append(arguments)
    partitioned(*arguments)

  monkeypatch.setattr(sharded_index, '_partition', counted)
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    calls = [
      pool.submit(sharded_index.plan, tmp_path / 'index', rows(), fields)
      for _ in range(4)
    ]
    (folder,) = {x.result() for x in calls}
  assert len(planned) == 1 and sharded_index.missing(folder) == [*range(6)]
  assert not [*folder.glob('nearest-*')]


@pytest.mark.parametrize('metric', ['squared_l2', 'dot_product'])
def test_ranges_find_what_exact_search_of_the_whole_finds(
  tmp_path, monkeypatch, metric
):
  """Rows stand in several ranges; the lower of two equal ones comes first."""
  vectors = np.tile(rows(150), (4, 1))
  built = build(tmp_path / 'index', vectors, metric=metric)
  monkeypatch.setattr(search_tasks, '_FEW_ROWS', 0)
  monkeypatch.setattr(search_tasks, '_TASK_ROWS', 130)
  whole = searchers.ExactSearcher(vectors, metric)
  oracle = search_tasks.Oracle(built.path, _Backwards())
  for count, k in ((7, 9), (3, 700)):
    found, wanted = (x.search(rows(count), k) for x in (oracle, whole))
    for a, b in zip(found, wanted, strict=True):
      np.testing.assert_array_equal(a, b)
  np.testing.assert_array_equal(
    oracle.score(rows(2), found[0][:2]), whole.score(rows(2), found[0][:2])
  )


@pytest.mark.parametrize(
  ('by', 'few'), [('rows', 0), ('centroid', 0), ('centroid', 2)]
)
def test_other_processes_build_and_measure_a_large_index(
  tmp_path, monkeypatch, by, few
):
  fields = {'searcher': 'int8', 'shard_by': by, 'shards_to_search': few}
  fields |= {'recall_floor': 0.0, 'num_queries': 50}
  wanted = build(tmp_path / 'alone', **fields).report

  def refused(*_, **__):
    raise AssertionError('this process does the work of a task')

  monkeypatch.setattr(search_tasks, '_FEW_ROWS', 0)
  for where, name in (
    (sharded_index, 'build_shard'),
    (partition, 'order'),
    (sharded.ShardedSearcher, '_shard'),
    (searchers.ExactSearcher, 'search'),
  ):
    if (name, few) != ('order', 2):  # the shards of a query are found here
      monkeypatch.setattr(where, name, refused)
  monkeypatch.chdir(tmp_path)
  found = index_lib.build_index(
    'index', rows(), 'v', config(**fields), executor=executors.Processes(2)
  )
  monkeypatch.undo()
  assert _bytes(tmp_path / 'index') == _bytes(tmp_path / 'alone')
  for name in ('recall@10', 'agreement_with_all_shards'):
    assert found.report.get(name) == wanted.get(name)
  told = {x for x in wanted if x.endswith('queries_per_sec')}
  assert told and not told & set(found.report)
  assert type(found.searcher) is sharded.ShardedSearcher


def test_writers_build_shards_of_one_plan(tmp_path):
  """Four writers build each shard; then the index takes them as they are."""
  build(tmp_path / 'alone')
  path, fields = tmp_path / 'index', index_fields(tmp_path / 'alone')
  folder = sharded_index.plan(path, rows(), fields)
  assert folder == sharded_index.plan(path, rows(), fields)
  task = pickle.loads(pickle.dumps(sharded_index.build_shard))  # as a job's
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    calls = [(str(folder), n) for n in range(6) for _ in range(4)]
    list(pool.map(task, *zip(*calls, strict=True)))
  assert sharded_index.missing(folder) == []
  inode = (folder / 'shard-000000' / 'searcher.json').stat().st_ino
  build(path)
  assert (path / 'shard-000000' / 'searcher.json').stat().st_ino == inode
  assert _bytes(path) == _bytes(tmp_path / 'alone')


@pytest.mark.parametrize(
  ('by', 'said'),
  [
    ('rows', 'Shard 4 of 6 in .*Database row 417 holds NaN'),
    ('centroid', 'Database row 417 holds NaN'),
  ],
)
def test_a_bad_row_is_named(tmp_path, by, said):
  bad = rows()
  bad[417, 3] = np.nan
  with pytest.raises(ValueError, match=said):
    build(tmp_path / 'index', bad, shard_by=by)
  assert not (tmp_path / 'index').exists()


def test_a_bad_row_outside_the_sample_is_named(tmp_path, monkeypatch):
  bad = rows()
  bad[417, 3] = np.nan
  monkeypatch.setattr(partition, 'centroids', lambda vectors, _: bad[:6])
  monkeypatch.setattr(partition, '_BLOCK_BYTES', 100 * 8 * (8 + 6))
  with pytest.raises(ValueError, match='Database row 417 holds NaN'):
    build(tmp_path / 'index', bad, shard_by='centroid')


def test_bad_settings_are_named(tmp_path):
  with pytest.raises(
    ValueError, match='shards=9: expected at most 5, the rows'
  ):
    build(tmp_path / 'index', rows(5), shards=9)
  for fields, said in (
    ({'shards': 2, 'shards_to_search': 3}, 'expected at most shards=2'),
    ({'shards_to_search': 3}, "shard_by='rows': expected 'centroid'"),
    ({'shards': 0}, 'shards=0'),
  ):
    with pytest.raises(ValueError, match=said):
      config(**fields)


def test_what_stands_is_reused_or_refused(tmp_path):
  path = tmp_path / 'index'
  first = build(path)
  again = build(path, shards_in_memory=2)
  assert again.fingerprint == first.fingerprint
  assert again.searcher.shards_in_memory == 2
  assert index_lib.open_index(path).searcher.shards_in_memory == 1
  assert index_lib.suits(path, rows(), 'v', config())
  for fields, said in (
    ({'shards': 5}, 'shards: expected 5, found 6'),
    ({'shards': 1}, 'shards: expected 1, found 6'),
    ({'shard_by': 'centroid'}, "shard_by: expected 'centroid'"),
  ):
    assert not index_lib.suits(path, rows(), 'v', config(**fields))
    with pytest.raises(ValueError, match=said):
      build(path, **fields)


@pytest.mark.parametrize('kind', ['int8', 'scann'])
def test_a_damaged_shard_names_its_file(tmp_path, monkeypatch, kind):
  if kind == 'scann' and not searchers.scann_available():
    pytest.skip('ScaNN exists for Linux only.')
  fields = {'searcher': kind, 'shards': 2, 'recall_floor': 0.0}
  path = build(tmp_path / 'index', rows(9000), **fields).path
  folder = path / 'shard-000001'
  file = max(folder.iterdir(), key=lambda f: f.stat().st_size)
  data = bytearray(file.read_bytes())
  data[len(data) // 2] ^= 1
  file.write_bytes(data)
  with pytest.raises(ValueError, match=f'shard-000001/{file.name}: damaged'):
    index_lib.open_index(path)
  monkeypatch.setenv(verification.VARIABLE, 'off')
  file.write_bytes(data[: len(data) // 2])
  searcher = index_lib.open_index(path).searcher
  with pytest.raises(ValueError, match='shard-000001'):
    searcher.search(rows(3), 2)


def test_a_folder_moves_with_its_copy_of_the_vectors(tmp_path):
  wanted = build(tmp_path / 'a' / 'i').searcher.search(rows(5), 4)
  os.rename(tmp_path / 'a', tmp_path / 'b')
  found = index_lib.open_index(tmp_path / 'b' / 'i').searcher.search(rows(5), 4)
  for a, b in zip(found, wanted, strict=True):
    np.testing.assert_array_equal(a, b)
