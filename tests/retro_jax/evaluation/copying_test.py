# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions of the neighbors' n-grams, and their mixture with a model."""

import numpy as np
import pytest

from retro_jax.evaluation import copying

M = 4


def _row():
  """Three chunks of one document; chunk 0 has two neighbors."""
  tokens = np.array([[9, 8, 1, 2, 3, 5, 6, 7, 4, 4, 4, 4]])
  targets = np.array([[8, 1, 2, 3, 5, 6, 7, 4, 4, 4, 4, 4]])
  given = np.zeros((1, 3, 2, 6), int)
  given[0, 0] = [[1, 2, 3, 0, 2, 9], [4, 0, 0, 3, 8, 0]]
  seen = np.zeros(given.shape, bool)
  seen[0, 0] = [[True] * 6, [True] * 5 + [False]]
  return {
    'tokens': tokens,
    'targets': targets,
    'loss_mask': np.ones(tokens.shape, bool),
    'segment_ids': np.ones(tokens.shape, int),
    'neighbors': given,
    'neighbor_mask': seen,
  }


def test_longest_context_and_its_share():
  order, share = copying.foretell(_row(), M)
  # Read from the last token of chunk 0 to the one before chunk 1's last.
  assert order[0].tolist() == [-1, -1, -1, 2, 3, 0, 0, -1, -1, -1, -1, -1]
  # After 1 2: 3, always. After 1 2 3: 0, never 5. 6 and 7 are in no neighbor.
  np.testing.assert_allclose(share[0, 3:7], [1, 0, 0, 0])


def test_other_documents_do_not_read():
  row = _row()
  row['segment_ids'][0, 4:] = 2
  order, _ = copying.foretell(row, M)
  assert (order[0] >= 0).tolist() == [False] * 3 + [True] + [False] * 8


def test_mixture_gains_what_it_should():
  row = _row()
  nats = np.full((1, 12), np.log(20.0))
  mixture = copying.Mixture(lambda row: nats, M)
  alone = mixture(row)
  np.testing.assert_allclose(alone, nats)
  mixture.fit()
  # Context 2 was always right, the others were never.
  assert mixture.weights.tolist() == pytest.approx([0, 0, 0.98, 0])
  gain = np.log(20) + np.log(0.02 / 20 + 0.98)
  gains = [gain if i == 3 else 0 for i in range(12)]
  np.testing.assert_allclose((alone - mixture(row))[0], gains)


def test_shares_of_all_tokens_sum_to_one_and_hold_the_targets():
  row = _row()
  order, shares = copying.distributions(row, M, 10)
  expected, of_targets = copying.foretell(row, M)
  np.testing.assert_array_equal(order, expected)
  np.testing.assert_allclose(shares.sum(-1), order >= 0)
  chosen = np.take_along_axis(shares, row['targets'][..., None], axis=-1)
  np.testing.assert_allclose(chosen[..., 0], of_targets)
