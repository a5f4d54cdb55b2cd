# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files, held against the library of that name."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from retrieval.store import safetensors_files

ARRAYS = {
  'matrix': np.arange(12, dtype=np.float32).reshape(3, 4),
  'turned': np.arange(6, dtype=np.float64).reshape(2, 3).T,
  'half': np.arange(4).astype(ml_dtypes.bfloat16),
  'scalar': np.asarray(7, np.int64),
  'none': np.zeros((0, 3), np.float32),
}


def _check(arrays, expected=ARRAYS):
  assert sorted(arrays) == sorted(expected)
  for name, array in expected.items():
    assert arrays[name].dtype == array.dtype
    np.testing.assert_array_equal(arrays[name], array)


def test_the_library_reads_what_is_written(tmp_path, monkeypatch):
  monkeypatch.setattr(safetensors_files, '_WRITE_BYTES', 20)
  safetensors_files.write(tmp_path / 'x', ARRAYS)
  _check(safetensors_numpy.load_file(tmp_path / 'x'))
  _check(safetensors_files.read(tmp_path / 'x'))
  assert [f.name for f in tmp_path.iterdir()] == ['x']


def test_what_the_library_writes_is_mapped(tmp_path):
  whole = {k: np.ascontiguousarray(v) for k, v in ARRAYS.items()}
  whole['scalar'] = ARRAYS['scalar']
  safetensors_numpy.save_file(whole, tmp_path / 'x')
  arrays = safetensors_files.read(tmp_path / 'x')
  _check(arrays)
  assert isinstance(arrays['matrix'].base, np.memmap)


def test_damaged_files_are_refused(tmp_path):
  file = tmp_path / 'x'
  safetensors_files.write(file, ARRAYS)
  whole = file.read_bytes()
  for data in (whole[:-1], whole[:5], b'\xff' * 40):
    file.write_bytes(data)
    with pytest.raises(ValueError, match=f'{file}: .*damaged'):
      safetensors_files.read(file)


def _entry(shape=(4,), start=0, end=16, dtype='F32'):
  return {'dtype': dtype, 'shape': shape, 'data_offsets': [start, end]}


HOSTILE = {
  'large_shape': {'x': _entry([1 << 32, 1 << 32], end=0)},
  'beyond_the_file': {'x': _entry([8], end=32)},
  'unknown_dtype': {'x': _entry(dtype='F8_E4M3')},
  'overlap': {'x': _entry(), 'y': _entry([2], 8, 16)},
  'no_entry': {'x': 5},
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_headers_are_refused_by_name(tmp_path, name):
  text = json.dumps(HOSTILE[name]).encode()
  file = tmp_path / 'x.safetensors'
  file.write_bytes(len(text).to_bytes(8, 'little') + text + bytes(16))
  with pytest.raises(ValueError, match=r'x\.safetensors: damaged \('):
    safetensors_files.read(file)
