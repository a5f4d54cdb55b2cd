# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The on-disk form: atomic, resumable, checked, memory-mapped."""

from concurrent import futures
import os
import resource
import subprocess
import sys
import time

import numpy as np
import pytest

from retrieval.store import array_store, drafts, manifests, output_files, shards
from tests.retrieval.store import tiny_stores

FIELDS = {'source': 'abc', 'length': 4}


def _shard(i, rows):
  rng = np.random.default_rng(i)
  return {
    'x': rng.standard_normal((rows, 3)).astype(np.float32),
    'y': rng.integers(0, 9, rows, dtype=np.int64),
  }


ROWS = (4, 0, 7, 1)


def _write(path, numbers=(0, 1, 2, 3)):
  writer = shards.StoreWriter(path, 'test', FIELDS)
  for i in numbers:
    shards.write_shard(writer.folder, i, _shard(i, ROWS[i]))
  return writer


def test_nothing_is_visible_before_publishing(tmp_path):
  writer = _write(tmp_path / 's', [0, 2])
  with pytest.raises(FileNotFoundError, match='no test store'):
    array_store.Store.open(tmp_path / 's', 'test')
  with pytest.raises(FileNotFoundError, match='shard-000001'):
    writer.publish(len(ROWS))


def test_resumes_at_missing_shards_and_ends_with_the_same_bytes(tmp_path):
  _write(tmp_path / 'a').publish(len(ROWS))
  _write(tmp_path / 'b', [0, 2])
  # A kill in the middle of a shard leaves a temporary file, no sidecar.
  (partial,) = tmp_path.glob('b.partial-*')
  drafts.beside(partial / 'x-000001.npy').write_bytes(b'half')
  again = shards.StoreWriter(tmp_path / 'b', 'test', FIELDS)
  assert again.missing(len(ROWS)) == [1, 3]
  _write(tmp_path / 'b', again.missing(len(ROWS))).publish(len(ROWS))
  assert tiny_stores.file_hashes(tmp_path / 'a') == tiny_stores.file_hashes(
    tmp_path / 'b'
  )
  assert not list(tmp_path.glob('*.partial-*'))
  opened = array_store.Store.open(tmp_path / 'b', 'test', FIELDS)
  want = np.concatenate([_shard(i, n)['x'] for i, n in enumerate(ROWS)])
  np.testing.assert_array_equal(opened.array('x')[:], want)


def test_says_what_differs(tmp_path):
  _write(tmp_path / 's').publish(len(ROWS))
  with pytest.raises(ValueError, match='length: expected 5, found 4'):
    shards.StoreWriter(tmp_path / 's', 'test', {**FIELDS, 'length': 5})
  with pytest.raises(ValueError, match="kind is 'test', expected 'other'"):
    array_store.Store.open(tmp_path / 's', 'other')
  manifest = tmp_path / 's' / 'manifest.json'
  content = manifests.read_json(manifest)
  manifest.write_text(manifests.sealed(content | {'schema': 99}))
  with pytest.raises(ValueError, match='schema is 99, expected 1'):
    array_store.Store.open(tmp_path / 's', 'test')


def test_a_foreign_folder_is_not_overwritten(tmp_path):
  (tmp_path / 's').mkdir()
  with pytest.raises(ValueError, match='exists without a manifest.json'):
    shards.StoreWriter(tmp_path / 's', 'test', FIELDS)


@pytest.mark.parametrize('damage', ['flip', 'remove'])
def test_verify_names_the_damaged_file(tmp_path, damage):
  opened = _write(tmp_path / 's').publish(len(ROWS))
  assert shards.StoreWriter(tmp_path / 's', 'test', FIELDS).published
  opened.verify()
  file = tmp_path / 's' / 'x-000002.npy'
  if damage == 'flip':
    tiny_stores.flip(file)
  else:
    file.unlink()
  for read in (
    opened.verify,
    lambda: opened.array('x')[:],
    lambda: opened.shard(2, 'x'),
  ):
    with pytest.raises(ValueError, match='x-000002.npy'):
      read()


@pytest.mark.parametrize('text', ['[1]', '{"schema": 1}', '{'])
def test_what_is_no_manifest_is_named(tmp_path, text):
  _write(tmp_path / 's').publish(len(ROWS))
  (tmp_path / 's' / 'manifest.json').write_text(text)
  with pytest.raises(ValueError, match='manifest.json: '):
    array_store.Store.open(tmp_path / 's', 'test')


def test_killed_while_publishing_loses_no_shard(tmp_path, monkeypatch):
  _write(tmp_path / 'whole').publish(len(ROWS))

  def killed(*args):
    raise RuntimeError('killed')

  with monkeypatch.context() as patch:
    patch.setattr(os, 'rename', killed)
    with pytest.raises(RuntimeError, match='killed'):
      _write(tmp_path / 's').publish(len(ROWS))
  again = shards.StoreWriter(tmp_path / 's', 'test', FIELDS)
  assert not again.published and again.missing(len(ROWS)) == []
  again.publish(len(ROWS)).verify()
  assert tiny_stores.file_hashes(tmp_path / 's') == tiny_stores.file_hashes(
    tmp_path / 'whole'
  )
  assert sorted(os.listdir(tmp_path)) == ['s', 'whole']


_KILLED = """
import sys, time
import numpy as np
from retrieval.store import shards

def make(i, progress):
  time.sleep(0.1)
  return {'x': np.arange(5) + i}

shards.build_store(sys.argv[1], 'test', {}, [5] * 9, make)
"""


@pytest.mark.slow
def test_a_build_that_is_killed_again_and_again_ends_with_the_same_bytes(
  tmp_path,
):
  folders = tmp_path / 'killed', tmp_path / 'whole'
  for path, sec in zip(folders, (0.25, 60), strict=True):
    kills = -1
    process = None
    while process is None or process.returncode:
      kills += 1
      before = len([*tmp_path.glob('*/shard-*')])
      process = subprocess.Popen([sys.executable, '-c', _KILLED, path])
      while len([*tmp_path.glob('*/shard-*')]) == before and not path.exists():
        time.sleep(0.01)
      try:
        process.wait(sec)
      except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert (kills > 1) == (path.name == 'killed')
  have, expected = map(tiny_stores.file_hashes, folders)
  assert have == expected and len(have) == 10
  assert sorted(os.listdir(tmp_path)) == ['killed', 'whole']


def test_a_second_builder_waits_and_makes_nothing(tmp_path):
  made = []

  def make(i, _):
    made.append(i)
    time.sleep(0.05)
    return _shard(i, ROWS[i])

  def build(_):
    return shards.build_store(tmp_path / 's', 'test', FIELDS, ROWS, make)

  with futures.ThreadPoolExecutor(2) as pool:
    one, other = pool.map(build, range(2))
  assert made == [0, 1, 2, 3] and one.fingerprint == other.fingerprint
  assert os.listdir(tmp_path) == ['s']


def test_a_file_appears_whole_or_not_at_all(tmp_path):
  path = tmp_path / 'new/file.txt'
  output_files.write(path, 'größer\n')
  assert path.read_bytes() == 'größer\n'.encode()
  with pytest.raises(RuntimeError, match='killed'):
    with output_files.writing(path, 'w') as f:
      f.write('half')
      f.flush()
      assert path.read_text() == 'größer\n'
      raise RuntimeError('killed')
  assert [p.name for p in path.parent.iterdir()] == ['file.txt']
  assert path.read_text() == 'größer\n'


def test_a_full_disk_tells_what_is_needed_and_left(tmp_path):
  array = np.zeros(100_000, np.int64)
  largest = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, largest[1]))
  try:
    with pytest.raises(output_files.FullError) as of_array:
      shards.write_shard(tmp_path, 0, {'x': array})
    with pytest.raises(output_files.FullError) as of_text:
      output_files.write(tmp_path / 'a.txt', 'x' * 3_000)
    with pytest.raises(output_files.FullError) as of_lines:
      with output_files.writing(tmp_path / 'b.txt') as f:
        f.write(bytes(3 << 20))
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, largest)
  for error, file, needed in (
    (of_array, array_store.shard_file('x', 0), '800,000'),
    (of_text, 'a.txt', '3,000'),
    (of_lines, 'b.txt', '2,001'),
  ):
    assert error.value.filename == str(tmp_path / file)
    assert f'needs {needed} bytes or more, ' in str(error.value)
    assert 'bytes are left' in str(error.value)
  assert not list(tmp_path.iterdir())


def test_what_is_no_file_is_never_replaced(tmp_path):
  (tmp_path / 'file').write_text('x')
  (tmp_path / 'folder').mkdir()
  os.mkfifo(tmp_path / 'pipe')
  for name in ('folder', 'pipe', 'file/below'):
    with pytest.raises(ValueError, match=f'^{tmp_path}/{name}: '):
      output_files.write(tmp_path / name, 'y')
  with pytest.raises(OSError) as error:
    output_files.write('/proc/no_file', 'y')
  assert error.value.filename == '/proc/no_file'
  for path, is_folder in (('/proc/a/b.json', False), ('/proc/a', True)):
    with pytest.raises(OSError) as error:
      output_files.check_writable(path, is_folder=is_folder)
    assert error.value.filename == path
  for name, is_folder in (('folder', False), ('file', True), ('file/x', True)):
    with pytest.raises(ValueError, match=f'^{tmp_path}/{name}'):
      output_files.check_writable(tmp_path / name, is_folder=is_folder)
  output_files.check_writable(tmp_path / 'new' / 'a.json')
  output_files.check_writable(tmp_path / 'folder', is_folder=True)
  assert (tmp_path / 'pipe').is_fifo()
  assert sorted(os.listdir(tmp_path)) == ['file', 'folder', 'pipe']


def test_joined_stores_have_the_wider_type(tmp_path):
  parts = []
  for name, dtype in (('a', np.uint16), ('b', np.uint32)):
    writer = shards.StoreWriter(tmp_path / name, 'test', FIELDS)
    for i in range(2):
      shards.write_shard(
        writer.folder, i, {'x': np.array([[np.iinfo(dtype).max, i]], dtype)}
      )
    parts.append(writer.publish(2))
  whole = array_store.JoinedStore(parts)
  values = [x.array('x')[:] for x in parts]
  np.testing.assert_array_equal(whole.array('x')[:], np.concatenate(values))
  np.testing.assert_array_equal(whole.shard(2, 'x'), values[1][:1])
  assert whole.array('x').dtype == np.uint32
  file = tmp_path / 'b' / array_store.shard_file('x', 1)
  file.write_bytes(file.read_bytes()[:-1] + b'x')
  with pytest.raises(ValueError, match='b/x-000001'):
    whole.verify()
