# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A coarse partition of a database: k-means over a sample, parts of bounded size.

S parts, P rows of a block, D dimension.
"""

from collections.abc import Callable
import warnings

import numpy as np
from scipy.cluster import vq

CAPACITY = 1.25  # of a part, over the mean size of all parts
_SAMPLE_ROWS = 256  # for each part
_LEAST_SAMPLE = 10_000
_MOST_SAMPLE = 1_000_000
_MOST_SPREAD = 64  # parts that begin far apart
_BLOCK_BYTES = 32 << 20


def centroids(vectors, num_parts: int) -> np.ndarray:
  """Return the k-means centroids [S, D] float32 of a sample, the same each time."""
  num_rows = int(vectors.shape[0])
  wanted = min(max(_SAMPLE_ROWS * num_parts, _LEAST_SAMPLE), _MOST_SAMPLE)
  rng = np.random.default_rng(0)
  ids = rng.choice(num_rows, min(num_rows, wanted), replace=False)
  # In float64, so that threads change no part of a row.
  sample = np.asarray(vectors[np.sort(ids)], np.float64)
  # Its cost grows with the square of the parts; where they are many, bad ones matter
  # less.
  start = '++' if num_parts <= _MOST_SPREAD else 'points'
  with warnings.catch_warnings():
    # An empty part keeps its centroid before; `assign` may fill it.
    warnings.simplefilter('ignore', UserWarning)
    found, _ = vq.kmeans2(
      sample, num_parts, iter=20, minit=start, rng=0, check_finite=False
    )
  return np.asarray(found, np.float32)


def order(
  rows: np.ndarray, centers: np.ndarray, metric: str = 'squared_l2'
) -> np.ndarray:
  """Return the parts [P, S] of rows [P, D], best first; ties by the lower part.

  The order does not depend on the number of threads: values are rounded to whole
  numbers, whose products and sums float64 holds exactly.
  """
  bits = (53 - centers.shape[1].bit_length()) // 2
  rows, row_scales = _whole(rows, np.abs(rows).max(axis=1, initial=0), bits)
  largest = np.abs(centers).max(initial=0, keepdims=True)[0]
  centers, scale = _whole(centers, largest, bits)
  scores = (rows @ centers.T) * row_scales * scale
  if metric == 'squared_l2':
    scores = 2 * scores - (centers * centers).sum(axis=1) * scale**2
  return np.argsort(-scores, axis=1, kind='stable')


def _whole(
  values: np.ndarray, largest: np.ndarray, bits: int
) -> tuple[np.ndarray, np.ndarray]:
  """Return whole numbers of some bits in float64, and the scales [*, 1] of them."""
  scales = np.where(largest > 0, largest, 1.0).astype(np.float64)[..., None]
  scales = scales / 2.0**bits
  return np.rint(values / scales), scales


def assign(
  read: Callable[[int, int], np.ndarray],
  num_rows: int,
  centers: np.ndarray,
  write: Callable[[np.ndarray], None],
) -> np.ndarray:
  """Assign each row to the nearest part that has room.

  Args:
    read: (low, high) -> rows [high - low, D] float32.
    write: takes the parts [P] uint16 of each block, in the order of the rows.

  Returns:
    Sizes [S] of the parts, at most `CAPACITY` of the mean.
  """
  num_parts, dimension = centers.shape
  room = np.full(num_parts, -(-int(CAPACITY * num_rows) // num_parts))
  sizes = np.zeros(num_parts, np.int64)
  step = max(1, _BLOCK_BYTES // (8 * (dimension + num_parts)))
  for low in range(0, num_rows, step):
    rows = read(low, min(low + step, num_rows))
    parts = _place(order(rows, centers), room)
    sizes += np.bincount(parts, minlength=num_parts)
    write(parts.astype(np.uint16))
  return sizes


def _place(wishes: np.ndarray, room: np.ndarray) -> np.ndarray:
  """Give rows the first part of their wishes [P, S] with room; takes the room."""
  parts = np.zeros(len(wishes), np.int64)
  waiting = np.arange(len(wishes))
  for rank in range(wishes.shape[1]):
    wanted, late = wishes[waiting, rank], []
    for part in np.unique(wanted):
      rows = waiting[wanted == part]
      taken = rows[: room[part]]
      parts[taken] = part
      room[part] -= len(taken)
      late.append(rows[len(taken) :])
    waiting = np.sort(np.concatenate(late))
    if not len(waiting):
      break
  return parts
