# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from retrieval import searchers
from retrieval.searchers import recall_check, scann as scann_lib
from tests.retrieval.searchers import clusters

_INF = np.inf


@pytest.mark.parametrize(
  ('ids', 'scores', 'exact', 'exact_scores', 'agreement'),
  [
    # In any order
    ([[4, 9, 1, -1]], [[-4, -9, -1, -_INF]], [[1, 2, 3, 4]], None, 2 / 4),
    ([[6, -1, -1]], [[-6, -_INF, -_INF]], [[5, 6, -1]], None, 1 / 2),
    # Nothing to find
    ([[-1, -1]], [[-_INF] * 2], [[-1, -1]], None, 1),
    # Ties
    ([[0, 7, 8]], [[3, 2, 1]], [[0, 1, 2]], [[3, 2, 2]], 2 / 3),
    ([[0, 7, -1]], [[3, 2, -_INF]], [[0, 1, 2]], [[3, 2, 2]], 2 / 3),
  ],
)
def test_agreement(ids, scores, exact, exact_scores, agreement):
  ids, scores, exact = map(np.array, (ids, scores, exact))
  if exact_scores is None:
    exact_scores = np.where(exact < 0, -_INF, -exact)
  value = recall_check.agreement_with_exact(
    ids, exact, scores * 1.0, np.array(exact_scores, float)
  )
  assert value == agreement


@clusters.NEEDS_SCANN
def test_recall_of_hits_that_are_scored_again(monkeypatch):
  """Hashes alone find few of the nearest 10 at once, but most among 200."""
  rows = clusters.clustered()
  monkeypatch.setattr(scann_lib, '_DIMENSIONS_PER_BLOCK', 4)
  config = searchers.ScannConfig(rescore='none', num_leaves_to_search=70)
  scann = searchers.ScannSearcher.build(rows, 'squared_l2', config)
  exact = searchers.ExactSearcher(rows, 'squared_l2')

  def recall(floor, num_rescored):
    how = {'num_queries': 30, 'k': 10, 'floor': floor}
    return recall_check.measure(
      scann, exact, rows, num_rescored=num_rescored, **how
    )['recall@10']

  assert recall(0.0, 0) < 0.8 < 0.9 < recall(0.0, 200) <= 1
  with pytest.raises(ValueError, match='recall_floor'):
    recall(0.9, 0)
