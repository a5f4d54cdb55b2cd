# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A retriever for the model of tests.retro_jax.tiny."""

import numpy as np

from retro_jax.data import neighbor_lookup

R = 7  # neighbor length


class Retriever:
  """Neighbors that depend on every token of the chunk, some of them missing."""

  def __init__(self):
    self.rows = []

  def __call__(self, rows, k):
    self.rows += [tuple(np.asarray(row).tolist()) for row in rows]
    seeds = [hash(tuple(np.asarray(row).tolist())) % 2**32 for row in rows]
    rngs = [np.random.default_rng(seed) for seed in seeds]
    shape = (k, R)
    tokens = np.stack([r.integers(0, 23, shape, np.int32) for r in rngs])
    mask = np.stack([r.random(shape) < 0.8 for r in rngs])
    mask &= np.stack([r.random((k, 1)) < 0.7 for r in rngs])
    ids = np.stack([r.integers(0, 99, k) for r in rngs])
    titles = [[f'title {i}' for i in row] for row in ids]
    return neighbor_lookup.Retrieved(ids, -1.0 * ids, tokens, mask, titles)
