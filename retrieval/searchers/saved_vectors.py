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

from retrieval.store import array_store, checksums, manifests, sharded_array

COPY = 'vectors.npy'
_COPY_BYTES = 256 << 20


def save(path: pathlib.Path, vectors) -> dict[str, Any]:
  """Save vectors [n, d] in a searcher's folder; return the fields of `load`."""
  shape = [int(n) for n in vectors.shape]
  if isinstance(vectors, sharded_array.ShardedArray) and vectors.num_shards:
    return {'shape': shape, 'store': _reference(path, vectors)}
  half = vectors.dtype == ml_dtypes.bfloat16
  dtype = np.dtype(ml_dtypes.bfloat16 if half else np.float32)
  header = {
    'descr': np.lib.format.dtype_to_descr(dtype),
    'fortran_order': False,
    'shape': tuple(shape),
  }
  step = max(1, _COPY_BYTES // (4 * shape[1]))
  # A full disk kills a process that writes to a memory map.
  with open(path / COPY, 'wb') as f:
    np.lib.format.write_array_header_1_0(f, header)
    for low in range(0, shape[0], step):
      rows = np.asarray(vectors[low : low + step], dtype)
      f.write(np.ascontiguousarray(rows).view(np.uint8))
  return {'shape': shape}


def load(path: pathlib.Path, fields: dict[str, Any]):
  """Open the vectors of `save` as a memory map or sharded array [n, d].

  A damaged file of a store shows when it is first read.

  Raises:
    ValueError: when they are damaged or replaced, or their store is missing.
  """
  if 'store' in fields:
    vectors = _follow(path, fields['store'])
  else:
    vectors = sharded_array.open_npy(path / COPY)
  shape = list(vectors.shape)
  if fields.get('shape', shape) != shape:
    raise ValueError(
      f'{path}: vectors of shape {shape}, expected {fields["shape"]}.'
    )
  return vectors


def reopened(vectors):
  """Return the same loaded vectors through other maps, closed with them."""
  if isinstance(vectors, sharded_array.ShardedArray):
    return copy.copy(vectors)
  return sharded_array.open_npy(pathlib.Path(vectors.filename))


def _reference(path: pathlib.Path, vectors: sharded_array.ShardedArray) -> dict:
  file = pathlib.Path(vectors.shard(0).filename)
  manifest = file.parent / array_store.MANIFEST
  return {
    'folder': os.path.relpath(file.parent.resolve(), path.resolve()),
    'kind': manifests.read_json(manifest)['kind'],
    'array': file.name.rpartition('-')[0],
    'manifest': checksums.of_file(manifest),
  }


def _follow(path: pathlib.Path, reference: dict) -> sharded_array.ShardedArray:
  folder = pathlib.Path(os.path.normpath(path.resolve() / reference['folder']))
  manifest = folder / array_store.MANIFEST
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
  stored = array_store.Store.open(folder, reference['kind'])
  return stored.array(reference['array'])
