# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Codes of vectors: packed as a slow loop packs them."""

import numpy as np
import pytest

from retrieval.search import residual_codes

D = 16


def _clustered(count, rng):
  """Unit vectors around twelve directions."""
  centers = rng.standard_normal((12, D))
  noise = 0.5 * rng.standard_normal((count, D))
  vectors = centers[rng.integers(12, size=count)] + noise
  return residual_codes.unit(vectors.astype(np.float32))


def test_codes_equal_a_slow_loop():
  vectors, bits = _clustered(50, np.random.default_rng(0)), 2
  codec = residual_codes.train(vectors, 1)
  assert codec.centroids.shape == (16, D) and len(codec.levels) == 2**bits
  nearest, codes = codec.encode(vectors)
  assert codes.shape == (50, D * bits // 8) and codes.dtype == np.uint8
  for vector, centroid, code in zip(vectors, nearest, codes, strict=True):
    assert centroid == np.argmax([vector @ c for c in codec.centroids])
    packed = int.from_bytes(code.tobytes(), 'little')
    decoded = []
    for i, value in enumerate(vector - codec.centroids[centroid]):
      bucket = packed >> (bits * i) & (2**bits - 1)
      assert bucket == sum(value >= cutoff for cutoff in codec.cutoffs)
      decoded.append(codec.centroids[centroid][i] + codec.levels[bucket])
    decoded = np.asarray(decoded) / np.linalg.norm(decoded)
    [found] = codec.decode(centroid[None], code[None])
    np.testing.assert_allclose(found, decoded, rtol=1e-5)


def test_the_number_of_centroids_follows_the_paper_and_the_sample():
  vectors = _clustered(300, np.random.default_rng(3))
  for stored, count in ((300, 256), (10_000, 300)):  # 16 sqrt(300) = 277
    assert len(residual_codes.train(vectors, stored).centroids) == count


def test_vectors_that_cannot_be_packed_are_refused():
  with pytest.raises(ValueError, match='2 bits'):
    residual_codes.train(np.zeros((5, 3), np.float32), 5)
