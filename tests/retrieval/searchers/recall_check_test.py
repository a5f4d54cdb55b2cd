# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from retrieval import searchers
from retrieval.searchers import recall_check
from tests.retrieval.searchers import clusters


def test_agreement_counts_what_both_found_in_any_order():
  exact = np.array([[1, 2, 3, 4], [5, 6, -1, -1]])
  found = np.array([[4, 9, 1, -1], [6, -1, -1, -1]])
  value = np.append(-np.arange(10.0), -np.inf)  # of each id
  got = recall_check.agreement_with_exact(
    found, exact, value[found], value[exact]
  )
  assert got == (2 / 4 + 1 / 2) / 2


def test_agreement_where_there_is_nothing_to_find():
  nothing = np.full((2, 3), -1)
  scores = np.full((2, 3), -np.inf)
  for rows in (nothing, nothing[:0]):
    given = rows, rows, scores[: len(rows)], scores[: len(rows)]
    assert recall_check.agreement_with_exact(*given) == 1.0


def test_agreement_counts_ties():
  exact, scores = np.array([[0, 1, 2]]), np.array([[3.0, 2.0, 2.0]])
  for found, of_found in (
    ([[0, 7, 8]], [[3.0, 2.0, 1.0]]),
    ([[0, 7, -1]], [[3.0, 2.0, -np.inf]]),
  ):
    given = np.array(found), exact, np.array(of_found), scores
    assert recall_check.agreement_with_exact(*given) == 2 / 3


@pytest.mark.usefixtures('unchecked')
def test_agreement_refuses_other_shapes():
  found, exact = np.zeros((1, 2), int), np.zeros((1, 3), int)
  with pytest.raises(ValueError, match='differ'):
    recall_check.agreement_with_exact(found, exact, found * 1.0, exact * 1.0)


@clusters.NEEDS_SCANN
def test_recall_of_hits_that_are_scored_again():
  """Hashes alone find few of the nearest 10 at once, but most among 200."""
  rows = clusters.clustered()
  config = searchers.ScannConfig(
    rescore='none', num_leaves_to_search=70, dimensions_per_block=4
  )
  scann = searchers.ScannSearcher.build(rows, 'squared_l2', config)
  exact = searchers.ExactSearcher(rows, 'squared_l2')
  check = recall_check.RecallCheck.of(rows, None, 30, 10)
  few, most = (
    recall_check.measure(scann, exact, check, 0.0, n)['recall@10']
    for n in (0, 200)
  )
  assert few < 0.8 < 0.9 < most <= 1
  with pytest.raises(ValueError, match='recall_floor'):
    recall_check.measure(scann, exact, check, 0.9)
