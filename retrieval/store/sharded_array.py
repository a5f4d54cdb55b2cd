# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One array over many .npy files, memory-mapped as it is read."""

from collections.abc import Sequence
import copy
import functools
import mmap
import os
import pathlib
import threading
import tokenize
import weakref

import ml_dtypes
import numpy as np
import numpy.typing as npt

from retrieval.store import verification

_MAX_OPEN_SHARDS = 256
_MAGIC = b'\x93NUMPY'
_MAX_HEADER = 10_000  # bytes; NumPy's own limit
# Errors of NumPy for a damaged header.
_DAMAGED = (
  ValueError,
  EOFError,
  TypeError,
  SyntaxError,
  OverflowError,
  MemoryError,
  RecursionError,
  tokenize.TokenError,
)
_header_lock = threading.Lock()


def dtype_of(name: npt.DTypeLike) -> np.dtype:
  """NumPy type of a .npy header's or manifest's name.

  NumPy lacks bfloat16 and writes 'V2' for it, a name that no other array here
  has.
  """
  try:
    dtype = np.dtype(name)
  except TypeError as e:
    raise ValueError(f'{name!r}: not a type of arrays ({e}).') from None
  return np.dtype(ml_dtypes.bfloat16) if dtype == np.dtype('V2') else dtype


def open_npy(file: pathlib.Path) -> np.ndarray:
  """Memory-maps one .npy file; safe to call from several threads.

  NumPy parses the header with `ast`, and Python 3.11 miscounts the depth when
  two threads do so at once ("recursion depth mismatch").

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: when it is damaged; nothing is allocated by its header.
  """
  with open(file, 'rb') as f:
    start = f.read(12)
  # Version 1 has two bytes of length, later versions four.
  length = start[8:10] if start[6:7] == b'\1' else start[8:12]
  if start[:6] != _MAGIC or int.from_bytes(length, 'little') > _MAX_HEADER:
    raise ValueError(f'{file}: damaged, not the header of a .npy file.')
  try:
    with _header_lock:
      array = np.load(file, mmap_mode='r', allow_pickle=False)
    return array.view(dtype_of(array.dtype))
  except _DAMAGED as e:
    raise ValueError(f'{file}: damaged ({e}).') from None


def _again(file: pathlib.Path) -> str:
  return f'remove {file.parent} and prepare it again'


def verify(file: pathlib.Path, checksum: str) -> None:
  """Compare the checksum of a store's file; ValueError where it is damaged."""
  verification.check(file, checksum, _again(file))


def load(
  file: pathlib.Path,
  shape: tuple[int, ...],
  dtype: np.dtype,
  checksum: str = '',
) -> np.ndarray:
  """Memory-maps one shard, verified by its checksum if there is one.

  Raises:
    ValueError: when it is missing, damaged, or differs from its manifest.
  """
  again = _again(file)
  if checksum:
    verify(file, checksum)
  try:
    array = open_npy(file)
  except FileNotFoundError:
    raise ValueError(f'{file}: missing from its store; {again}.') from None
  except ValueError as e:
    raise ValueError(f'{str(e).rstrip(".")}; {again}.') from None
  if array.shape != shape or array.dtype != dtype:
    raise ValueError(
      f'{file}: holds {array.dtype} {array.shape}, its manifest says {dtype} '
      f'{shape}; {again}.'
    )
  return array


def in_range(
  values: np.ndarray, low: int, high: int, file: str | os.PathLike
) -> None:
  """Raise ValueError, naming the file of `values`, unless all are in [low, high)."""
  if values.size and (values.min() < low or values.max() >= high):
    raise ValueError(
      f'{file}: holds {values.min()} to {values.max()}, expected {low} to '
      f'{high - 1}; it is damaged, or of another store.'
    )


class RowError(ValueError, IndexError):
  """Row numbers beyond an array; an IndexError, so that iteration ends."""


def gather_spans(
  source: 'ShardedArray',
  shards: np.ndarray,
  starts: np.ndarray,
  counts: np.ndarray,
  width: int,
  pointers: 'ShardedArray',
) -> tuple[np.ndarray, np.ndarray]:
  """Read spans of a flat sharded array as the rows of a rectangle.

  Args:
    source: [total] over all shards.
    shards: [n] shard of each span; -1 for an empty row.
    starts: [n] first element of each span within its shard.
    counts: [n] elements of each span, of which at most `width` are read.
    pointers: array of as many shards that the starts were read from.

  Returns:
    [n, width] int32, 0 past a span's end, and [n, width] bool, False there.

  Raises:
    ValueError: for a span beyond its shard, naming the file of `pointers`.
  """
  steps = np.arange(width)
  valid = (steps < counts[:, None]) & (shards >= 0)[:, None]
  values = np.zeros(valid.shape, np.int32)
  filled = valid.any(axis=1)
  room = np.diff(source.offsets)[shards] - np.minimum(counts, width)
  beyond = filled & ((starts < 0) | (starts > room))
  if beyond.any():
    i = int(np.flatnonzero(beyond)[0])
    shard = int(shards[i])
    raise ValueError(
      f'{pointers.file(shard)}: holds a span of {counts[i]} from {starts[i]}, '
      f'beyond {source.file(shard)}; it is damaged, or of another store.'
    )
  for shard in np.unique(shards[filled]).tolist():
    here = np.flatnonzero((shards == shard) & filled)
    index = np.where(valid[here], starts[here, None] + steps, 0)
    values[here] = np.where(valid[here], source.shard(shard)[index], 0)
  source.check(values, np.where(filled, shards, -1))
  return values, valid


class ShardedArray:
  """Rows of one array over all shards, memory-mapped.

  Attributes:
    shape: (rows, *row shape).
    dtype: NumPy type of the rows.
  """

  def __init__(
    self,
    files: Sequence[pathlib.Path],
    rows: Sequence[int],
    row_shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    checksums: Sequence[str] = (),
  ):
    """Take the files and what their manifest says.

    Args:
      checksums: of each file, compared when it is first opened; none if empty.
    """
    self._files, self._checksums = list(files), list(checksums)
    self._limits, self._ends, self._are_spans = None, None, False
    self.offsets = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
    self.shape = (int(self.offsets[-1]), *row_shape)
    self.dtype = dtype_of(dtype)
    self._start()

  def _start(self) -> None:
    self._map = functools.lru_cache(_MAX_OPEN_SHARDS)(self._open)
    self._opened: dict[int, weakref.ref] = {}  # maps that may be open

  def __getstate__(self):
    state = self.__dict__.copy()
    del state['_map'], state['_opened']
    return state

  def __setstate__(self, state):
    self.__dict__.update(state)
    self._start()

  def forget(self) -> None:
    """Close the memory maps; rows that are read later open them again."""
    self._map.cache_clear()

  def release(self) -> None:
    """Give back the memory of the maps, which stay open, where the system can."""
    for opened in [*self._opened.values()]:
      mapped = getattr(opened(), '_mmap', None)
      if mapped is not None and hasattr(mmap, 'MADV_DONTNEED'):
        mapped.madvise(mmap.MADV_DONTNEED)

  def within(self, low: int, high: int) -> 'ShardedArray':
    """The same rows; ValueError where a value that is read leaves [low, high)."""
    found = copy.copy(self)
    found._limits = low, high
    return found

  def spans(self, lengths: Sequence[int]) -> 'ShardedArray':
    """The same rows, as [first, past-last] within parts of some elements.

    A row that is not one raises ValueError when it is read. No part is longer
    than the longest of `lengths`.
    """
    found = self.within(0, max(lengths, default=0) + 1)
    found._are_spans = True
    return found

  def ending(self, lengths: Sequence[int]) -> 'ShardedArray':
    """The same rows, as ascending ends of parts of [lengths[shard]] elements.

    A shard that does not end there raises ValueError when it is opened.
    """
    found = copy.copy(self)
    found._ends = list(lengths)
    return found

  def file(self, shard: int) -> pathlib.Path:
    """File of one shard."""
    return self._files[shard]

  def check(self, values: np.ndarray, shards: np.ndarray) -> None:
    """Hold rows [n, ...] of shards [n] against the limits of this array, if any.

    Rows of shard -1 are not its own and are not checked.

    Raises:
      ValueError: naming the first file with another value.
    """
    if not self._leaves_limits(values):
      return
    for shard in np.unique(shards[shards >= 0]).tolist():
      rows = values[shards == shard]
      if self._leaves_limits(rows):
        low, high = self._limits
        kind = 'spans within' if self._are_spans else 'values of'
        raise ValueError(
          f'{self._files[shard]}: holds {rows.min()} to {rows.max()}, expected '
          f'{kind} {low} to {high - 1}; it is damaged, or of another store.'
        )

  def _leaves_limits(self, values: np.ndarray) -> bool:
    if self._limits is None or not values.size:
      return False
    low, high = self._limits
    if values.min() < low or values.max() >= high:
      return True
    return self._are_spans and bool((values[..., 0] > values[..., 1]).any())

  def _open(self, shard: int) -> np.ndarray:
    file, rows = self._files[shard], np.diff(self.offsets[shard : shard + 2])
    shape = (int(rows[0]), *self.shape[1:])
    checksum = self._checksums[shard] if self._checksums else ''
    array = load(file, shape, self.dtype, checksum)
    self._opened[shard] = weakref.ref(array)
    if self._ends is not None:
      self._check_ends(array, shard)
    return array

  def _check_ends(self, ends: np.ndarray, shard: int) -> None:
    last = int(ends[-1]) if len(ends) else 0
    if last != self._ends[shard] or (np.diff(ends, prepend=0) < 0).any():
      raise ValueError(
        f'{self._files[shard]}: its ends do not ascend to {self._ends[shard]}; '
        'it is damaged, or of another store.'
      )

  @property
  def num_shards(self) -> int:
    """Number of files."""
    return len(self._files)

  @property
  def ndim(self) -> int:
    """Number of dimensions."""
    return len(self.shape)

  def shard(self, index: int) -> np.ndarray:
    """Memory-maps the rows of one shard."""
    return self._map(index)

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map row numbers [...] to (shard [...], row within the shard [...])."""
    rows = np.asarray(rows, np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
      where = f'{self._files[0]}: ' if self._files else ''
      raise RowError(
        f'{where}rows {rows.min()} to {rows.max()} were asked for of an array '
        f'of {len(self)} rows.'
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
      found = self._map(int(shards[0]))[int(rows[0])]
      self.check(np.asarray(found)[None], shards)
      return found
    shards, rows = self.locate(key)
    out = np.empty((*rows.shape, *self.shape[1:]), self.dtype)
    for shard in np.unique(shards).tolist():
      here = shards == shard
      out[here] = self._map(shard)[rows[here]]
    self.check(out, shards)
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
        self.check(parts[-1], np.full(len(parts[-1]), i))
    return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)

  def __array__(self, dtype=None, copy=None):
    return np.asarray(self[:], dtype)


# An array whose rows are in memory, mapped, or spread over files.
Rows = np.ndarray | ShardedArray
