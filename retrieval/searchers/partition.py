# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A coarse partition of a database: k-means over a sample, parts of bounded size.

`order` finds the nearest parts of a block of rows, in any process; then `assign` places
the rows in order. S parts, P rows of a block, D dimension.
"""

from collections.abc import Callable, Iterable, Iterator
import warnings

import numpy as np

from retrieval.searchers import base

CAPACITY = 1.25  # of a part, over the mean size of all parts
NUM_NEAREST = 64  # parts that are found for each row; few rows need more
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
  ids.sort()
  sample = np.asarray(vectors[ids], np.float64)
  base.check_vectors(sample, ids=ids)
  # Its cost grows with the square of the parts; where they are many, bad ones matter
  # less.
  start = '++' if num_parts <= _MOST_SPREAD else 'points'
  from scipy.cluster import vq  # a second of start-up

  with warnings.catch_warnings():
    # An empty part keeps its centroid before; `assign` may fill it.
    warnings.simplefilter('ignore', UserWarning)
    found, _ = vq.kmeans2(
      sample, num_parts, iter=20, minit=start, rng=0, check_finite=False
    )
  return np.asarray(found, np.float32)


def order(
  rows: np.ndarray,
  centers: np.ndarray,
  metric: str = 'squared_l2',
  few: int | None = None,
) -> np.ndarray:
  """Return the `few` best parts of rows [P, D], best first; ties by the lower part.

  The order does not depend on the number of threads: values are rounded to whole
  numbers, whose products and sums float64 holds exactly.

  Returns:
    [P, few], or [P, S] where `few` is None.
  """
  bits = (53 - centers.shape[1].bit_length()) // 2
  rows, row_scales = _whole(rows, np.abs(rows).max(axis=1, initial=0), bits)
  largest = np.abs(centers).max(initial=0, keepdims=True)[0]
  centers, scale = _whole(centers, largest, bits)
  scores = (rows @ centers.T) * row_scales * scale
  if metric == 'squared_l2':
    scores = 2 * scores - (centers * centers).sum(axis=1) * scale**2
  return _least(-scores, few or len(centers))


def _least(costs: np.ndarray, few: int) -> np.ndarray:
  """Return the places of the least costs [P, S], ties by the lower place."""
  if few >= costs.shape[1]:
    return np.argsort(costs, axis=1, kind='stable')
  places = np.sort(np.argpartition(costs, few - 1, axis=1)[:, :few], axis=1)
  found = np.take_along_axis(costs, places, 1)
  by_cost = np.argsort(found, axis=1, kind='stable')
  places = np.take_along_axis(places, by_cost, 1)
  # Of equal costs at the end, `argpartition` takes any.
  last = found.max(axis=1, keepdims=True)
  tied = np.flatnonzero((costs <= last).sum(axis=1) > few)
  places[tied] = np.argsort(costs[tied], axis=1, kind='stable')[:, :few]
  return places


def _whole(
  values: np.ndarray, largest: np.ndarray, bits: int
) -> tuple[np.ndarray, np.ndarray]:
  """Return whole numbers of some bits in float64, and the scales [*, 1] of them."""
  scales = np.where(largest > 0, largest, 1.0).astype(np.float64)[..., None]
  scales = scales / 2.0**bits
  return np.rint(values / scales), scales


def block_rows(centers: np.ndarray) -> int:
  """Return the rows P of a block, which bounds the memory of `order`."""
  return max(1, _BLOCK_BYTES // (8 * sum(centers.shape)))


def assign(
  nearest: Iterable[np.ndarray],
  num_rows: int,
  num_parts: int,
  all_nearest: Callable[[np.ndarray], np.ndarray],
) -> Iterator[np.ndarray]:
  """Assign each row to the nearest part that has room, `CAPACITY` of the mean.

  Args:
    nearest: [P, W] nearest parts of the rows of each block, in the order of the rows.
    all_nearest: ids [n] of rows -> all parts [n, S], nearest first, for rows whose W
      parts are full.

  Yields:
    Parts [P] uint16 of each block.
  """
  room = np.full(num_parts, -(-int(CAPACITY * num_rows) // num_parts))
  low = 0
  for block in nearest:
    parts = np.zeros(len(block), np.uint16)
    waiting = _place(block, np.arange(len(block)), room, parts)
    if len(waiting):
      _place(all_nearest(low + waiting), waiting, room, parts)
    low += len(block)
    yield parts


def _place(
  nearest: np.ndarray, waiting: np.ndarray, room: np.ndarray, parts: np.ndarray
) -> np.ndarray:
  """Give waiting rows [n] the first of their nearest parts [n, W] that has room.

  Returns:
    Rows for which none had room. `room` and `parts` change in place.
  """
  places = np.arange(len(waiting))
  for rank in range(nearest.shape[1]):
    if not len(places):
      break
    wanted = nearest[places, rank]
    by_part = np.argsort(wanted, kind='stable')
    places, wanted = places[by_part], wanted[by_part]
    counts = np.bincount(wanted, minlength=len(room))
    before = np.cumsum(counts) - counts  # rows of lower parts
    fits = np.arange(len(wanted)) - before[wanted] < room[wanted]
    parts[waiting[places[fits]]] = wanted[fits]
    room -= np.minimum(counts, room)
    places = np.sort(places[~fits])
  return waiting[places]
