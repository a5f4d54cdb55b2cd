# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Some rows of an array, read when they are asked for."""

from typing import Any

import numpy as np


class SelectedRows:
  """Rows of an array on disk, as an array of their own; nothing is copied yet."""

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
      found = self._rows[key]
      return self._array[found.start : found.stop : found.step]
    return self._array[self._rows.start + np.asarray(key, np.int64)]

  def __array__(self, dtype=None, copy=None):
    return np.asarray(self[:], dtype)
