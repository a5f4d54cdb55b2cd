# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of int8 codes on disk: a byte a dimension instead of two or four."""

import json
import os
import pathlib

import numpy as np

from retrieval.searchers import base, exact
from retrieval.store import sharded_array

LEVELS = 127  # of a sign
_BLOCK_BYTES = 64 << 20
_CODES, _SCALES = 'codes.npy', 'scales.npy'


def encode(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Round rows to int8, each with its own scale.

  Returns:
    codes: [n, d] int8. No value moves by more than half its row's scale.
    scales: [n] float32, 1/127 of each row's largest value.
  """
  rows = np.asarray(rows, np.float32)
  scales = np.abs(rows).max(axis=1) / np.float32(LEVELS)
  safe = np.where(scales > 0, scales, 1)[:, None]
  codes = np.rint(rows / safe).clip(-LEVELS, LEVELS)
  return codes.astype(np.int8), scales.astype(np.float32)


class _Decoded:
  """Rows [n, d] float32 of codes, decoded when they are read."""

  dtype = np.dtype(np.float32)

  def __init__(self, codes: np.ndarray, scales: np.ndarray):
    self._codes, self._scales, self.shape = codes, scales, codes.shape

  def __getitem__(self, key) -> np.ndarray:
    codes = np.asarray(self._codes[key], np.float32)
    return codes * np.asarray(self._scales[key])[..., None]


class Int8Searcher:
  """Best rows by their codes, streamed from disk block by block.

  Scores are those of the codes; callers score the candidates again.
  """

  name = 'int8'

  def __init__(self, codes: np.ndarray, scales: np.ndarray, metric: str):
    """Take what `encode` returned, in memory or mapped."""
    self._codes, self._scales, self.metric = codes, scales, metric
    self.num_vectors, self.dimension = codes.shape
    rows = _Decoded(codes, scales)
    self._exact = exact.ExactSearcher(
      rows, metric, resident_bytes=0, check=False
    )

  def search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Find the k best rows of each query by their codes."""
    return self._exact.search(queries, k)

  def save(self, path: str | os.PathLike) -> None:
    """Write the codes."""
    parts = ((self._codes, self._scales),)
    _write(pathlib.Path(path), self.metric, self._codes.shape, parts)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Int8Searcher':
    """Map saved codes.

    Raises:
      ValueError: when they are missing or damaged.
    """
    path = pathlib.Path(path)
    fields = base.read_fields(path)
    shape = tuple(fields['shape'])
    return cls(
      sharded_array.load(path / _CODES, shape, np.dtype(np.int8)),
      sharded_array.load(path / _SCALES, shape[:1], np.dtype(np.float32)),
      fields['metric'],
    )


def write(path: str | os.PathLike, vectors, metric: str) -> None:
  """Encode vectors [n, d] block by block, and write the files of `load`."""
  step = max(1, _BLOCK_BYTES // (4 * vectors.shape[1]))
  parts = (
    encode(vectors[low : low + step])
    for low in range(0, vectors.shape[0], step)
  )
  _write(pathlib.Path(path), metric, vectors.shape, parts)


def _write(path: pathlib.Path, metric: str, shape, parts) -> None:
  path.mkdir(parents=True, exist_ok=True)
  shape = tuple(int(n) for n in shape)
  with (
    open(path / _CODES, 'wb') as codes,
    open(path / _SCALES, 'wb') as scales,
  ):
    for file, dtype, size in (
      (codes, '|i1', shape),
      (scales, '<f4', shape[:1]),
    ):
      np.lib.format.write_array_header_1_0(
        file, {'descr': dtype, 'fortran_order': False, 'shape': size}
      )
    for some, their_scales in parts:
      codes.write(np.ascontiguousarray(some).view(np.uint8))
      scales.write(np.ascontiguousarray(their_scales).view(np.uint8))
  fields = {'name': Int8Searcher.name, 'metric': metric, 'shape': shape}
  (path / 'searcher.json').write_text(json.dumps(fields) + '\n')
