# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fused lists against sums in plain Python."""

import numpy as np
import pytest

from retrieval.search import fuse


def _lists(seed=0, shape=(5, 12)):
  """Two searches of few ids; rows end early, and one finds nothing."""
  rng = np.random.default_rng(seed)
  lists = []
  for scale in (1.0, 40.0):
    ids = np.array([rng.permutation(20)[: shape[1]] for _ in range(shape[0])])
    scores = -np.sort(-rng.standard_normal(shape) * scale, axis=1)
    ids[1, 4:], ids[2] = -1, -1
    lists.append((ids, np.where(ids < 0, -np.inf, scores).astype(np.float32)))
  lists[1][1][3] = 7  # equal scores
  return lists


def _order(total, k):
  best = sorted(total, key=lambda i: (-total[i], i))[:k]
  return best + [-1] * (k - len(best)), [total[i] for i in best]


def _check(found, totals, k):
  ids, scores = found
  assert ids.dtype == np.int64 and scores.dtype == np.float32
  for row, total in enumerate(totals):
    want, values = _order(total, k)
    assert ids[row].tolist() == want
    np.testing.assert_allclose(scores[row, : len(values)], values, rtol=1e-6)
    assert np.isneginf(scores[row, len(values) :]).all()


@pytest.mark.parametrize('k', [3, 30])
def test_ranks(k):
  lists, totals = _lists(), []
  for row in range(5):
    total = {}
    for ids, _ in lists:
      for rank, i in enumerate(ids[row].tolist(), start=1):
        if i >= 0:
          total[i] = total.get(i, 0) + 1 / (60 + rank)
    totals.append(total)
  _check(fuse.fused(lists, k), totals, k)


@pytest.mark.parametrize('weights', [(0.7, 0.3), (1.0, 0.0), (0.0, 1.0)])
def test_scores(weights):
  lists, totals = _lists(), []
  for row in range(5):
    total = {}
    for (ids, scores), weight in zip(lists, weights, strict=True):
      found = {
        i: float(s)
        for i, s in zip(ids[row], scores[row], strict=True)
        if i >= 0
      }
      low, high = min(found.values(), default=0), max(found.values(), default=0)
      for i, score in found.items():
        value = (score - low) / (high - low) if high > low else 1.0
        total[i] = total.get(i, 0) + weight * value
    totals.append(total)
  _check(fuse.fused(lists, 9, weights), totals, 9)
