# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Codes of vectors: packed as a slow loop packs them, and close to the originals."""

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


def _codec(vectors, **fields):
  fields = {'num_centroids': 12} | fields
  return residual_codes.train(vectors, residual_codes.CodecConfig(**fields))


def _cosines(codec, vectors):
  found = codec.decode(*codec.encode(vectors))
  np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
  return (found * vectors).sum(axis=1)


@pytest.mark.parametrize('bits', [1, 2, 4])
def test_codes_equal_a_slow_loop(bits):
  vectors = _clustered(50, np.random.default_rng(0))
  codec = _codec(vectors, num_bits=bits)
  assert codec.num_bits == bits and len(codec.cutoffs) == 2**bits - 1
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


def test_more_bits_and_more_centroids_lose_less():
  rng = np.random.default_rng(1)
  vectors, new = np.split(_clustered(4000, rng), 2)
  errors = [1 - _cosines(_codec(vectors, num_bits=b), new) for b in (1, 2, 4)]
  means = [error.mean() for error in errors]
  assert means[0] > 2 * means[1] > 4 * means[2]
  assert means[1] < 0.05 and errors[1].max() < 0.4
  many = _cosines(_codec(vectors, num_centroids=200), new)
  assert 1 - many.mean() < means[1]


def test_the_number_of_centroids_follows_the_paper_and_the_sample():
  vectors = _clustered(300, np.random.default_rng(3))
  assert len(_codec(vectors, num_centroids=0).centroids) == 256  # 16 sqrt(300)
  config = residual_codes.CodecConfig()
  many = residual_codes.train(vectors, config, num_stored=10_000)
  assert len(many.centroids) == 300


def test_vectors_that_cannot_be_packed_are_refused():
  with pytest.raises(ValueError, match='2 bits'):
    residual_codes.train(
      np.zeros((5, 3), np.float32), residual_codes.CodecConfig()
    )
