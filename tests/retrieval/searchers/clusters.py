# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors around a few centers for approximate searchers; what needs ScaNN."""

import numpy as np
import pytest

from retrieval import searchers

NEEDS_SCANN = pytest.mark.skipif(
  not searchers.scann_available(), reason='ScaNN has no wheel here.'
)


def clustered(num_rows=5000, dimension=16):
  rng = np.random.default_rng(0)
  centers = rng.standard_normal((40, dimension))
  rows = centers[rng.integers(0, 40, num_rows)]
  rows = rows + 0.5 * rng.standard_normal((num_rows, dimension))
  return rows.astype(np.float32)
