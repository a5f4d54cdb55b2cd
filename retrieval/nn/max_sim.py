# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of late interaction on the host (Khattab and Zaharia 2020, eq. 3).

Dimension key: P passages, Q tokens of a query, T tokens of all passages, D vector.
"""

from typing import NamedTuple

from jaxtyping import Float
import numpy as np

UNIT = 'sum of best inner products'  # of a score


class TokenVectors(NamedTuple):
  """Vectors of the tokens of passages, one passage after the other."""

  values: np.ndarray  # [tokens, D] float32
  ends: np.ndarray  # [passages] int64 past-last token of each


def spans(ends: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return the tokens of some passages, and the past-last one of each of these."""
  starts = np.where(ids > 0, ends[np.maximum(ids - 1, 0)], 0)
  counts = ends[ids] - starts
  new_ends = np.cumsum(counts)
  shift = np.repeat(starts - (new_ends - counts), counts)
  return np.arange(len(shift)) + shift, new_ends


def max_sims(
  query: Float[np.ndarray, 'Q D'],
  values: Float[np.ndarray, 'T D'],
  ends: np.ndarray,
) -> Float[np.ndarray, ' P']:
  """Score `TokenVectors` for one query, float32."""
  return sum_of_best(values @ query.T, np.arange(len(values)), ends)


def sum_of_best(
  cosines: Float[np.ndarray, 'X Q'], rows: np.ndarray, ends: np.ndarray
) -> Float[np.ndarray, ' P']:
  """Return the sum over Q of the largest cosine of each passage's tokens.

  Args:
    rows: [T] row of `cosines` of each token.
    ends: [P] past-last token of each passage, which has one at least.
  """
  counts = np.diff(ends, prepend=0)
  order = np.argsort(-counts, kind='stable')
  counts = counts[order]
  starts = ends[order] - counts
  # One position of all passages that are long enough after the other:
  # np.maximum.reduceat takes four times as long.
  best = cosines[rows[starts]]
  for i in range(1, counts.max(initial=0)):
    n = np.searchsorted(-counts, -i)
    np.maximum(best[:n], cosines[rows[starts[:n] + i]], out=best[:n])
  sums = np.empty(len(ends), np.float32)
  sums[order] = best.sum(axis=1)
  return sums
