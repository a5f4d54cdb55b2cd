# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of arrays over many files."""

from concurrent import futures
import gc
import pickle
import sys

import numpy as np
import pytest

from retrieval.store import checksums, sharded_array


def _sharded(
  folder, *rows: int
) -> tuple[sharded_array.ShardedArray, np.ndarray]:
  whole = np.arange(sum(rows) * 3, dtype=np.int32).reshape(-1, 3)
  files = []
  for shard, part in enumerate(np.split(whole, np.cumsum(rows)[:-1])):
    files.append(folder / f'{shard}.npy')
    np.save(files[-1], part)
  sums = [*map(checksums.of_file, files)]
  return sharded_array.ShardedArray(files, rows, (3,), np.int32, sums), whole


@pytest.mark.parametrize(
  'key',
  [
    4,
    -1,
    slice(1, 7),
    slice(3, 3),
    slice(None, None, 2),
    np.array([[6, 0], [3, 3]]),
    np.array([], np.int64),
  ],
  ids=str,
)
def test_reads_as_one_array(tmp_path, key):
  array, whole = _sharded(tmp_path, 3, 1, 0, 4)
  np.testing.assert_array_equal(array[key], whole[key])
  np.testing.assert_array_equal(
    pickle.loads(pickle.dumps(array))[key], whole[key]
  )


@pytest.mark.parametrize('key', [[8], [-1]])
def test_rows_outside_are_refused(tmp_path, key):
  array, _ = _sharded(tmp_path, 3, 5)
  with pytest.raises(IndexError, match='of an array of 8 rows') as error:
    array[np.array(key)]
  assert isinstance(error.value, ValueError)
  assert str(error.value).startswith(f'{tmp_path}/0.npy: rows ')


def test_threads_open_files_at_once(tmp_path):
  # Python's parser of literals loses count when two threads are inside it; a
  # busy garbage collector lets them change places there.
  array, whole = _sharded(tmp_path, *[1] * 400)
  threshold, interval = gc.get_threshold(), sys.getswitchinterval()

  def busy(*_):
    return list(map(str, range(20)))

  gc.callbacks.append(busy)
  gc.set_threshold(20, 1, 1)
  sys.setswitchinterval(1e-6)

  def read(depth: int) -> np.ndarray:
    return read(depth - 1) if depth else array[np.arange(400)]

  try:
    with futures.ThreadPoolExecutor(8) as pool:
      results = list(pool.map(read, range(8)))
  finally:
    gc.callbacks.remove(busy)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)
  for result in results:
    np.testing.assert_array_equal(result, whole)


@pytest.mark.parametrize(
  'head',
  [
    b'',
    b"\x93NUMPY\1\0\x76\0{'descr': '<i8', 'fortran_order': False, 'shape': "
    b'(1152921504606846976,)}' + b' ' * 41 + b'\n',
    b"\x93NUMPY\1\0\x10\0{'descr': [[[[[\n",
  ],
)
def test_headers_of_other_lengths_are_named(tmp_path, head):
  file = tmp_path / 'a.npy'
  file.write_bytes(head)
  with pytest.raises(ValueError, match=r'a\.npy: damaged'):
    sharded_array.open_npy(file)
