# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of a saved searcher: a copy, or a checked reference.

The arrays of a published store never change, so a searcher over them saves
their place and the hash of the store's manifest, which holds the hash of every
shard. Any other array is copied.
"""

import copy
import os
import pathlib
from typing import Any

import ml_dtypes
import numpy as np

from retrieval.store import (
  checksums,
  manifests,
  sharded_array,
  store,
)

COPY = 'vectors.npy'
_MANIFEST = 'manifest.json'
_COPY_BYTES = 256 << 20


def save(path: pathlib.Path, vectors) -> dict[str, Any]:
  """Save vectors [n, d] in a searcher's folder; return the fields of `load`."""
  shape = [int(n) for n in vectors.shape]
  if isinstance(vectors, sharded_array.ShardedArray) and vectors.num_shards:
    return {'shape': shape, 'store': _reference(path, vectors)}
  dtype, file = _copy_dtype(vectors), path / COPY
  header = {
    'descr': np.lib.format.dtype_to_descr(dtype),
    'fortran_order': False,
    'shape': tuple(shape),
  }
  step = max(1, _COPY_BYTES // (4 * shape[1]))
  # A full disk kills a process that writes to a memory map.
  with open(file, 'wb') as f:
    np.lib.format.write_array_header_1_0(f, header)
    for low in range(0, shape[0], step):
      rows = np.asarray(vectors[low : low + step], dtype)
      f.write(np.ascontiguousarray(rows).view(np.uint8))
  return {'shape': shape}


def load(path: pathlib.Path, fields: dict[str, Any]):
  """Open the vectors of `save` as a memory map or sharded array [n, d].

  Raises:
    ValueError: when they are missing, damaged or replaced.
  """
  if 'store' in fields:
    vectors = _follow(path, fields['store'])
  else:
    vectors = _map(path / COPY)
  shape = fields.get('shape', list(vectors.shape))
  if list(vectors.shape) != shape:
    raise ValueError(
      f'{path}: vectors of shape {list(vectors.shape)}, expected {shape}.'
    )
  return vectors


def reopened(vectors):
  """Return the same loaded vectors through maps of their own, closed with them."""
  if isinstance(vectors, sharded_array.ShardedArray):
    return copy.copy(vectors)
  return sharded_array.open_npy(pathlib.Path(vectors.filename))


def num_bytes(vectors) -> int:
  """Return the size of the saved vectors."""
  known = isinstance(vectors, sharded_array.ShardedArray)
  dtype = vectors.dtype if known else _copy_dtype(vectors)
  return int(np.prod(vectors.shape)) * dtype.itemsize


def _copy_dtype(vectors) -> np.dtype:
  """Return the type of a copy: bfloat16 for bfloat16, else float32."""
  half = vectors.dtype == ml_dtypes.bfloat16
  return np.dtype(ml_dtypes.bfloat16 if half else np.float32)


def _reference(path: pathlib.Path, vectors: sharded_array.ShardedArray) -> dict:
  file = pathlib.Path(vectors.shard(0).filename)
  manifest = manifests.read_json(file.parent / _MANIFEST)
  return {
    'folder': os.path.relpath(file.parent.resolve(), path.resolve()),
    'kind': manifest['kind'],
    'array': file.name.rpartition('-')[0],
    'manifest': checksums.of_file(file.parent / _MANIFEST),
  }


def _follow(path: pathlib.Path, reference: dict) -> sharded_array.ShardedArray:
  folder = path.resolve() / reference['folder']
  folder = pathlib.Path(os.path.normpath(folder))
  manifest = folder / _MANIFEST
  if not manifest.exists():
    raise ValueError(
      f'{path}: the vectors of this searcher stood in {folder} and are not '
      'there; move both together, or build it again.'
    )
  if checksums.of_file(manifest) != reference['manifest']:
    raise ValueError(
      f'{path}: the vectors in {folder} changed after this searcher was built '
      'from them; build it again.'
    )
  found = store.Store.open(folder, reference['kind'])
  found.verify()
  return found.array(reference['array'])


def _map(file: pathlib.Path) -> np.ndarray:
  try:
    return sharded_array.open_npy(file)
  except OSError as e:
    raise ValueError(f'{file}: damaged ({e}).') from None
