# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Lists of several retrievers made one: by ranks, or by weighted scores.

Without weights it is reciprocal rank fusion (Cormack et al. 2009), with weights the
linear interpolation of Ma et al. 2021 (A Replication Study of Dense Passage Retriever,
section 3): an id that a list lacks takes the list's lowest score.

Dimension key: b queries, n ids of each list, k ids of the result.
"""

from collections.abc import Sequence

import numpy as np

from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.searchers import base
from retrieval.store import manifests

CANDIDATES = 100  # of each list, at least
CONSTANT = 60  # of ranks: a larger one makes them more equal


class Fused:
  """A retriever of the fused lists of others, each of at least `CANDIDATES` ids."""

  def __init__(
    self,
    *parts: retriever_lib.Retriever,
    weights: Sequence[float] | None = None,
  ):
    """Take retrievers and the weights of their scores; None fuses ranks."""
    self._parts, self._weights = parts, weights
    self.unit = 'weighted score' if weights else 'fused rank score'
    self.fingerprint = manifests.fingerprint(
      [[part.fingerprint for part in parts], weights or CONSTANT, CANDIDATES]
    )

  def search(self, queries, k) -> base.Hits:
    """See `retriever.Retriever`."""
    queries, n = queries_lib.checked(queries, k), max(k, CANDIDATES)
    lists = [part.search(queries, n) for part in self._parts]
    return fused(lists, k, self._weights)


def fused(
  lists: Sequence[base.Hits], k: int, weights: Sequence[float] | None = None
) -> base.Hits:
  """Score each id by the sum over lists of 1 / (60 + rank), or of weighted scores.

  For weights, the lowest score of a list becomes 0 and its highest one 1; equal scores
  become 1. An id that the list lacks has 0.

  Args:
    lists: ids [b, n] and scores of each search, best first, -1 for none.

  Returns:
    ids [b, k] int64 and scores [b, k] float32, best first, ties by the lower id.
  """
  if weights is None:
    values = [
      np.broadcast_to(1 / (CONSTANT + 1 + np.arange(ids.shape[1])), ids.shape)
      for ids, _ in lists
    ]
  else:
    pairs = zip(lists, weights, strict=True)
    values = [weight * _normalised(*hits) for hits, weight in pairs]
  ids, scores = base.nothing(len(lists[0][0]), k)
  for row in range(len(ids)):
    ids_of_row = np.concatenate([x[row] for x, _ in lists])
    there = ids_of_row >= 0
    unique, place = np.unique(ids_of_row[there], return_inverse=True)
    added = np.concatenate([x[row] for x in values])[there]
    total = np.bincount(place, added, len(unique))
    best = np.argsort(-total, kind='stable')[:k]
    ids[row, : len(best)] = unique[best]
    scores[row, : len(best)] = total[best]
  return ids, scores


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
