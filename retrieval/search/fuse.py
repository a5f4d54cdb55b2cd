# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Lists of several retrievers made one: by ranks, or by weighted scores.

`by_ranks` is reciprocal rank fusion (Cormack et al. 2009). `by_scores` is the linear
interpolation of Ma et al. 2021 (A Replication Study of Dense Passage Retriever, section
3): an id that a list lacks takes the list's lowest score.

Dimension key: b queries, n ids of each list, k ids of the result.
"""

from collections.abc import Sequence

import numpy as np

from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.searchers import base
from retrieval.store import manifests

CANDIDATES = 100  # of each list, at least
CONSTANT = 60  # of `by_ranks`: a larger one makes ranks more equal

Hits = queries_lib.Hits


class Fused:
  """A retriever of the fused lists of others, each of at least `CANDIDATES` ids."""

  def __init__(
    self,
    *parts: retriever_lib.Retriever,
    weights: Sequence[float] | None = None,
  ):
    """Take retrievers and their weights in `by_scores`; None fuses `by_ranks`."""
    self._parts, self._weights = parts, weights
    self.unit = 'weighted score' if weights else 'fused rank score'
    self.fingerprint = manifests.fingerprint(
      [[part.fingerprint for part in parts], weights or CONSTANT, CANDIDATES]
    )

  def search(
    self, queries: queries_lib.Queries | Sequence[str], k: int
  ) -> Hits:
    """See `retriever.Retriever`."""
    queries, n = queries_lib.checked(queries, k), max(k, CANDIDATES)
    lists = [part.search(queries, n) for part in self._parts]
    if self._weights is None:
      return by_ranks([ids for ids, _ in lists], k)
    return by_scores(lists, self._weights, k)


def by_ranks(lists: Sequence[np.ndarray], k: int) -> Hits:
  """Score each id by the sum over lists of 1 / (60 + rank).

  Args:
    lists: ids [b, n] of each search, best first, -1 for none.

  Returns:
    ids [b, k] int64 and scores [b, k] float32, best first, ties by the lower id.
  """
  values = [
    np.broadcast_to(1 / (CONSTANT + np.arange(1, ids.shape[1] + 1)), ids.shape)
    for ids in lists
  ]
  return _sums(lists, values, k)


def by_scores(lists: Sequence[Hits], weights: Sequence[float], k: int) -> Hits:
  """Score each id by the weighted sum of its normalised scores.

  The lowest score of a list becomes 0 and its highest one 1; equal scores become 1. An
  id that the list lacks has 0.

  Args:
    lists: ids and scores of each search, best first.
    weights: of each list.

  Returns:
    As `by_ranks`.
  """
  values = [
    weight * _normalised(*hits)
    for hits, weight in zip(lists, weights, strict=True)
  ]
  return _sums([ids for ids, _ in lists], values, k)


def _normalised(ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
  """Return scores [b, n] in [0, 1]; 0 for none."""
  there = ids >= 0
  scores = np.asarray(scores, np.float64)
  low = np.where(there, scores, np.inf).min(axis=1, initial=np.inf)[:, None]
  high = np.where(there, scores, -np.inf).max(axis=1, initial=-np.inf)[:, None]
  differ = there & (high > low)
  scaled = np.zeros(ids.shape)
  np.divide(scores - low, high - low, out=scaled, where=differ)
  return np.where(differ, scaled, there.astype(np.float64))


def _sums(
  lists: Sequence[np.ndarray], values: Sequence[np.ndarray], k: int
) -> Hits:
  """Add up the values [b, n] of each id, and order by them."""
  ids, scores = base.nothing(len(lists[0]), k)
  for row in range(len(ids)):
    ids_of_row = np.concatenate([x[row] for x in lists])
    there = ids_of_row >= 0
    unique, place = np.unique(ids_of_row[there], return_inverse=True)
    added = np.concatenate([x[row] for x in values])[there]
    total = np.bincount(place, added, len(unique))
    best = np.argsort(-total, kind='stable')[:k]
    ids[row, : len(best)] = unique[best]
    scores[row, : len(best)] = total[best]
  return ids, scores
