# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The on-disk form: atomic, resumable, checked, memory-mapped."""

import hashlib
import json
import pickle

import numpy as np
import pytest

from retrieval import store

FIELDS = {'source': 'abc', 'length': 4}


def _shard(i, rows):
  rng = np.random.default_rng(i)
  return {
    'x': rng.standard_normal((rows, 3)).astype(np.float32),
    'y': rng.integers(0, 9, rows, dtype=np.int64),
  }


ROWS = (4, 0, 7, 1)


def _write(path, shards=(0, 1, 2, 3)):
  writer = store.StoreWriter(path, 'test', FIELDS)
  for i in shards:
    writer.write(i, _shard(i, ROWS[i]))
  return writer


def _bytes(path):
  return {
    f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in path.iterdir()
  }


def test_reads_back_what_was_written(tmp_path):
  opened = _write(tmp_path / 's').publish(len(ROWS), {'a': 1})
  want = np.concatenate([_shard(i, n)['x'] for i, n in enumerate(ROWS)])
  x = opened.array('x')
  assert x.shape == want.shape and x.dtype == want.dtype
  np.testing.assert_array_equal(np.asarray(x), want)
  for key in (slice(2, 9), slice(4, 4), slice(0, 12, 3), slice(-3, None)):
    np.testing.assert_array_equal(x[key], want[key])
  ids = np.array([[11, 0], [4, 4], [3, 10]])
  np.testing.assert_array_equal(x[ids], want[ids])
  np.testing.assert_array_equal(x[-1], want[-1])
  assert opened.meta == {'a': 1}
  with pytest.raises(IndexError, match='12 rows'):
    x[np.array([12])]


def test_array_survives_pickling(tmp_path):
  x = _write(tmp_path / 's').publish(len(ROWS)).array('x')
  np.testing.assert_array_equal(pickle.loads(pickle.dumps(x))[:], x[:])


def test_nothing_is_visible_before_publishing(tmp_path):
  writer = _write(tmp_path / 's', [0, 2])
  with pytest.raises(FileNotFoundError, match='no test store'):
    store.Store.open(tmp_path / 's', 'test')
  with pytest.raises(ValueError, match='2 of 4 shards are missing.* 1'):
    writer.publish(len(ROWS))


def test_resumes_at_missing_shards_and_ends_with_the_same_bytes(tmp_path):
  _write(tmp_path / 'a').publish(len(ROWS))
  _write(tmp_path / 'b', [0, 2])
  # A kill in the middle of a shard leaves a temporary file, no sidecar.
  (partial,) = tmp_path.glob('b.partial-*')
  (partial / '.x-000001.npy.4711').write_bytes(b'half')
  again = store.StoreWriter(tmp_path / 'b', 'test', FIELDS)
  assert again.missing(len(ROWS)) == [1, 3]
  _write(tmp_path / 'b', again.missing(len(ROWS))).publish(len(ROWS))
  assert _bytes(tmp_path / 'a') == _bytes(tmp_path / 'b')
  assert not list(tmp_path.glob('*.partial-*'))


def test_writing_again_reuses_what_is_published(tmp_path):
  _write(tmp_path / 's').publish(len(ROWS))
  assert store.StoreWriter(tmp_path / 's', 'test', FIELDS).published


def test_says_what_differs(tmp_path):
  _write(tmp_path / 's').publish(len(ROWS))
  with pytest.raises(ValueError, match='length: expected 5, found 4'):
    store.StoreWriter(tmp_path / 's', 'test', {**FIELDS, 'length': 5})
  with pytest.raises(ValueError, match="kind is 'test', expected 'other'"):
    store.Store.open(tmp_path / 's', 'other')
  manifest = tmp_path / 's' / 'manifest.json'
  manifest.write_text(
    json.dumps({**json.loads(manifest.read_text()), 'schema': 99})
  )
  with pytest.raises(ValueError, match='schema is 99, expected 1'):
    store.Store.open(tmp_path / 's', 'test')


def test_a_foreign_folder_is_not_overwritten(tmp_path):
  (tmp_path / 's').mkdir()
  with pytest.raises(ValueError, match='holds no manifest.json'):
    store.StoreWriter(tmp_path / 's', 'test', FIELDS)


@pytest.mark.parametrize('damage', ['flip', 'remove'])
def test_verify_names_the_damaged_file(tmp_path, damage):
  opened = _write(tmp_path / 's').publish(len(ROWS))
  opened.verify()
  file = tmp_path / 's' / 'x-000002.npy'
  data = bytearray(file.read_bytes())
  data[-1] ^= 1
  if damage == 'flip':
    file.write_bytes(data)
  else:
    file.unlink()
  with pytest.raises(ValueError, match='x-000002.npy'):
    opened.verify()


def test_unknown_array_is_named(tmp_path):
  opened = _write(tmp_path / 's').publish(len(ROWS))
  with pytest.raises(ValueError, match="no array 'z', it holds"):
    opened.array('z')
