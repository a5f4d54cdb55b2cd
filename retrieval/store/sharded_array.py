# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One array over many .npy files, memory-mapped as it is read."""

from collections.abc import Sequence
import functools
import pathlib
import threading
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from retrieval.store import checksums

_MAX_OPEN_SHARDS = 256
_header_lock = threading.Lock()


def dtype_of(name: npt.DTypeLike) -> np.dtype:
  """NumPy type of a name in a header or manifest; NumPy writes bfloat16 as 'V2'."""
  dtype = np.dtype(name)
  return np.dtype(ml_dtypes.bfloat16) if dtype == np.dtype('V2') else dtype


def open_npy(file: pathlib.Path) -> np.ndarray:
  """Memory-maps one .npy file; ValueError when it is damaged."""
  try:
    # NumPy parses the header with `ast`, and Python 3.11 miscounts the depth when
    # two threads do so at once ("recursion depth mismatch").
    with _header_lock:
      array = np.lib.format.open_memmap(file, mode='r')
    return array.view(dtype_of(array.dtype))
  except OSError:
    raise
  except Exception as e:  # of many classes, for a damaged header
    raise ValueError(f'{file}: damaged ({e}).') from None


def advice(file: pathlib.Path) -> str:
  """Return the advice of errors about a damaged file of a store."""
  return f'remove {file.parent} and prepare it again'


def load(file: pathlib.Path, checksum: str) -> np.ndarray:
  """Memory-maps one shard of a store; ValueError when it is missing or damaged."""
  checksums.check(file, checksum, advice(file))
  try:
    return open_npy(file)
  except (FileNotFoundError, ValueError) as e:
    raise ValueError(f'{e}; {advice(file)}.') from None


class RowError(ValueError, IndexError):
  """Row numbers beyond an array; an IndexError, so that iteration ends."""


def gather_spans(
  source: 'ShardedArray',
  ids: np.ndarray,
  shards: np.ndarray,
  starts: np.ndarray,
  counts: np.ndarray,
  width: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Read spans of a flat sharded array as the rows of a rectangle.

  Args:
    source: [total] over all shards.
    ids: [...] id of each span; -1 for an empty row.
    shards: [...] shard of each span.
    starts: [...] first element of each span within its shard.
    counts: [...] elements of each span, of which at most `width` are read.

  Returns:
    [..., width] int32, 0 past a span's end, and [..., width] bool, False there.
  """
  steps = np.arange(width)
  valid = (steps < counts[..., None]) & (ids >= 0)[..., None]
  values = np.zeros(valid.shape, np.int32)
  filled = valid.any(axis=-1)
  for shard in np.unique(shards[filled]).tolist():
    here = (shards == shard) & filled
    index = np.where(valid[here], starts[here][:, None] + steps, 0)
    values[here] = np.where(valid[here], source.shard(shard)[index], 0)
  return values, valid


class ShardedArray:
  """Rows of one array over all shards, memory-mapped."""

  def __init__(
    self,
    files: Sequence[pathlib.Path],
    rows: Sequence[int],
    row_shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    checksums: Sequence[str],
  ):
    self._files, self._checksums = list(files), list(checksums)
    self.offsets = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
    self.shape = (int(self.offsets[-1]), *row_shape)
    self.dtype = dtype_of(dtype)

  @functools.cached_property
  def _map(self):
    # Without a cycle of references: maps are closed with their array.
    files, sums = self._files, self._checksums
    return functools.lru_cache(_MAX_OPEN_SHARDS)(
      lambda index: load(files[index], sums[index])
    )

  def __getstate__(self):
    return {k: x for k, x in self.__dict__.items() if k != '_map'}

  @property
  def num_shards(self) -> int:
    """Number of files."""
    return len(self._files)

  def shard(self, index: int) -> np.ndarray:
    """Memory-maps the rows of one shard."""
    return self._map(index)

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map row numbers [...] to (shard [...], row within the shard [...])."""
    rows = np.asarray(rows, np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
      where = f'{self._files[0]}: ' if self._files else ''
      raise RowError(
        f'{where}rows {rows.min()} to {rows.max()} of an array of {len(self)} '
        'rows.'
      )
    shards = np.asarray(np.searchsorted(self.offsets, rows, side='right') - 1)
    return shards, np.asarray(rows - self.offsets[shards])

  def __len__(self) -> int:
    return self.shape[0]

  def __getitem__(self, key):
    if isinstance(key, slice):
      start, stop, step = key.indices(len(self))
      if step != 1:
        return self[np.arange(start, stop, step)]
      return self._slice(start, max(start, stop))
    if np.ndim(key) == 0:
      key = int(key) + (len(self) if key < 0 else 0)
      shards, rows = self.locate(np.asarray([key]))
      return self._map(int(shards[0]))[int(rows[0])]
    shards, rows = self.locate(key)
    out = np.empty((*rows.shape, *self.shape[1:]), self.dtype)
    for shard in np.unique(shards).tolist():
      here = shards == shard
      out[here] = self._map(shard)[rows[here]]
    return out

  def _slice(self, start: int, stop: int) -> np.ndarray:
    if start == stop:
      return np.empty((0, *self.shape[1:]), self.dtype)
    first, last = np.searchsorted(self.offsets, [start, stop - 1], 'right') - 1
    parts = []
    for i, low in enumerate(
      self.offsets[first : last + 1].tolist(), int(first)
    ):
      if self.offsets[i + 1] > low:
        parts.append(self._map(i)[max(start - low, 0) : stop - low])
    return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

  def __array__(self, dtype=None, copy=None):
    return np.asarray(self[:], dtype)


class SelectedRows:
  """Rows of an array on disk, as another array; nothing is copied yet."""

  def __init__(self, array: Any, rows: range | np.ndarray):
    """Take an array [n, ...] and ascending row numbers."""
    self._array, self._rows = array, rows
    self.shape, self.dtype = (len(rows), *array.shape[1:]), array.dtype

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, key) -> np.ndarray:
    if not isinstance(self._rows, range):
      return self._array[self._rows[key]]
    if isinstance(key, slice):
      rows = self._rows[key]
      return self._array[rows.start : rows.stop : rows.step]
    return self._array[self._rows.start + np.asarray(key, np.int64)]

  def __array__(self, dtype=None, copy=None):
    return np.asarray(self[:], dtype)


# An array whose rows are in memory, mapped, or spread over files.
Rows = np.ndarray | ShardedArray
