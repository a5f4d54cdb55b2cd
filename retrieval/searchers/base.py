# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What every searcher promises, and the checks that make it true."""

import os
from typing import Protocol

import numpy as np

METRICS = ('dot_product', 'squared_l2')
_CHECK_ROWS = 65_536


class Searcher(Protocol):
  """Maximum inner product or nearest neighbor search over fixed vectors.

  Attributes:
    name: kind of searcher.
    metric: 'dot_product', or 'squared_l2' whose score is the negative distance.
    num_vectors: rows of the database.
    dimension: of each.
  """

  name: str
  metric: str
  num_vectors: int
  dimension: int

  def search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k best rows of each query.

    Args:
      queries: [b, dimension] float32.
      k: how many.

    Returns:
      ids: [b, k] int64, best first; -1 where fewer than k exist.
      scores: [b, k] float32, larger is better; -inf there.
    """

  def save(self, path: str | os.PathLike) -> None:
    """Writes all that `load` needs into the folder `path`."""


def check_metric(metric: str) -> None:
  """Raises ValueError for an unknown metric."""
  if metric not in METRICS:
    raise ValueError(f'metric {metric!r}: expected one of {METRICS}.')


def check_vectors(vectors) -> None:
  """Checks a database once, block by block.

  Args:
    vectors: [n, d] array, memory map or sharded array.

  Raises:
    ValueError: for another shape or a value that is not finite.
  """
  if len(vectors.shape) != 2 or not vectors.shape[1]:
    raise ValueError(
      f'Database of shape {tuple(vectors.shape)}: expected [rows, dimension].'
    )
  for low in range(0, vectors.shape[0], _CHECK_ROWS):
    block = np.asarray(vectors[low : low + _CHECK_ROWS])
    bad = ~np.isfinite(block).all(axis=1)
    if bad.any():
      row = low + int(np.flatnonzero(bad)[0])
      raise ValueError(f'Database row {row} holds NaN or infinity.')


def check_queries(queries, dimension: int, k: int) -> np.ndarray:
  """Checks queries and returns them as [b, d] float32.

  Raises:
    ValueError: for another shape, k < 1, or a value that is not finite.
  """
  queries = np.asarray(queries, np.float32)
  if queries.ndim != 2 or queries.shape[1] != dimension:
    raise ValueError(
      f'Queries of shape {queries.shape}: expected [batch, {dimension}].'
    )
  if k < 1:
    raise ValueError(f'k={k}: expected at least 1.')
  bad = ~np.isfinite(queries).all(axis=1)
  if bad.any():
    row = int(np.flatnonzero(bad)[0])
    raise ValueError(f'Query {row} holds NaN or infinity.')
  return queries


def pad(
  ids: np.ndarray, scores: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
  """Fills up to k columns with -1 and -inf."""
  width = ((0, 0), (0, k - ids.shape[1]))
  return (
    np.pad(ids.astype(np.int64), width, constant_values=-1),
    np.pad(scores.astype(np.float32), width, constant_values=-np.inf),
  )
