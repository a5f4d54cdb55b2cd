# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from retrieval.searchers import recall_check


def test_agreement_counts_what_both_found_in_any_order():
  exact = np.array([[1, 2, 3, 4], [5, 6, -1, -1]])
  found = np.array([[4, 9, 1, -1], [6, -1, -1, -1]])
  assert recall_check.agreement_with_exact(found, exact) == (2 / 4 + 1 / 2) / 2


def test_agreement_where_there_is_nothing_to_find():
  nothing = np.full((2, 3), -1)
  assert recall_check.agreement_with_exact(nothing, nothing) == 1.0
  assert recall_check.agreement_with_exact(nothing[:0], nothing[:0]) == 1.0


def test_agreement_with_scores_counts_ties():
  exact = np.array([[0, 1, 2]])
  found = np.array([[0, 7, 8]])
  scores = np.array([[3.0, 2.0, 2.0]])
  assert recall_check.agreement_with_exact(found, exact) == 1 / 3
  of_found = np.array([[3.0, 2.0, 1.0]])
  assert (
    recall_check.agreement_with_exact(found, exact, of_found, scores) == 2 / 3
  )
  missing = np.array([[0, 7, -1]])
  of_found = np.array([[3.0, 2.0, -np.inf]])
  assert (
    recall_check.agreement_with_exact(missing, exact, of_found, scores) == 2 / 3
  )


@pytest.mark.usefixtures('unchecked')
def test_agreement_refuses_other_shapes():
  with pytest.raises(ValueError, match='differ'):
    recall_check.agreement_with_exact(
      np.zeros((1, 2), int), np.zeros((1, 3), int)
    )
