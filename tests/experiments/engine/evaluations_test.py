# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Differences of rows with their seeds, and their files."""

import numpy as np
import pytest

from experiments.engine import evaluations


def _row(name, values, num_bytes=None):
  return evaluations.Row(
    name=name, values={'': np.array(values)}, num_bytes=num_bytes
  )


def test_seeds_are_paired_by_number_or_with_one():
  a, b = _row('a', [[1.0, 3], [2, 6]]), _row('b', [[0.0, 0], [1, 1]])
  assert a.minus(b)['of_seeds'] == [2, 3]
  assert a.minus(_row('b', [1.0, 2]))['of_seeds'] == [0.5, 2.5]
  assert _row('b', [1.0, 2]).minus(a)['of_seeds'] == [-0.5, -2.5]
  with pytest.raises(ValueError, match='Row c has 3 runs and a 2'):
    _row('c', np.ones((3, 2))).minus(a)
  with pytest.raises(ValueError, match='different items'):
    _row('c', np.ones(3)).minus(a)
