# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compression of unit vectors: nearest centroid and a coarse residual.

Santhanam et al. 2021 (ColBERTv2), section 3.3. Spherical k-means gives the centroids.
Each value of a residual becomes the number of its bucket; the buckets hold equally
many values of a sample, and a bucket is read as the median of its values.

Dimension key: n vectors, d values, C centroids, b bits.
"""

import dataclasses

from jaxtyping import Float, Int, Integer, UInt8
import numpy as np

NUM_BITS = 2  # b, of each value of a residual
NUM_ITERATIONS = 4  # of k-means, as in the released code
SEED = 0  # of the first centroids
_AT_ONCE = 4096  # vectors compared with all centroids together
_PER_BYTE = 8 // NUM_BITS
Vectors = Float[np.ndarray, 'n d']
Centroids = Float[np.ndarray, 'C d']
Codes = UInt8[np.ndarray, 'n bytes']  # packed buckets
_SHIFTS = NUM_BITS * np.arange(_PER_BYTE, dtype=np.uint8)


@dataclasses.dataclass(frozen=True, eq=False)
class Codec:
  """Centroids and buckets."""

  centroids: Centroids  # float32, of length 1
  cutoffs: Float[np.ndarray, ' c']  # [2^b - 1] float32 between buckets
  levels: Float[np.ndarray, ' l']  # [2^b] float32 value of each bucket

  def encode(self, vectors: Vectors) -> tuple[Int[np.ndarray, ' n'], Codes]:
    """Return the centroid of each vector, and its residual's packed buckets."""
    nearest = assign(vectors, self.centroids)
    residuals = vectors - self.centroids[nearest]
    buckets = np.zeros(residuals.shape, np.uint8)
    for cutoff in self.cutoffs:
      buckets += residuals >= cutoff
    parts = buckets.reshape(len(vectors), -1, _PER_BYTE)
    return nearest, np.bitwise_or.reduce(parts << _SHIFTS, axis=-1)

  def decode(self, nearest: Integer[np.ndarray, ' n'], codes: Codes) -> Vectors:
    """Return vectors of length 1, float32."""
    buckets = np.arange(256)[:, None] >> _SHIFTS & (len(self.levels) - 1)
    vectors = self.levels[buckets][codes].reshape(len(codes), -1)
    vectors += self.centroids[nearest]
    return unit(vectors)


def train(vectors: Vectors, num_stored: int) -> Codec:
  """Fit a codec to a sample of vectors of length 1.

  Args:
    num_stored: vectors that will be stored. C is the power of two at most 16
      sqrt(num_stored), as in the paper, and at most n.

  Raises:
    ValueError: where d values of b bits are no whole bytes.
  """
  n, d = vectors.shape
  if d % _PER_BYTE:
    raise ValueError(
      f'Vectors of {d} values at {NUM_BITS} bits: expected whole bytes.'
    )
  count = 2 ** (int(16 * num_stored**0.5).bit_length() - 1)
  centroids = _spherical_k_means(vectors, min(count, n))
  residuals = vectors - centroids[assign(vectors, centroids)]
  shares = np.arange(2 * 2**NUM_BITS + 1) / (2 * 2**NUM_BITS)
  edges = np.quantile(residuals, shares[1:-1]).astype(np.float32)
  return Codec(centroids, edges[1::2], edges[::2])


def assign(vectors: Vectors, centroids: Centroids) -> Int[np.ndarray, ' n']:
  """Return the centroid of the largest inner product with each vector, int32."""
  nearest = np.empty(len(vectors), np.int32)
  for low in range(0, len(vectors), _AT_ONCE):
    part = slice(low, low + _AT_ONCE)
    nearest[part] = (vectors[part] @ centroids.T).argmax(axis=1)
  return nearest


def unit(vectors: Vectors) -> Vectors:
  """Return vectors scaled to length 1; zeros stay zeros."""
  lengths = np.sqrt(np.einsum('nd,nd->n', vectors, vectors))
  return vectors / np.maximum(lengths, 1e-12)[:, None]


def _spherical_k_means(vectors: np.ndarray, num_centroids: int) -> np.ndarray:
  """Return centroids [C, d]; one that loses all its vectors stays."""
  rng = np.random.default_rng(SEED)
  first = rng.choice(len(vectors), num_centroids, replace=False)
  centroids = vectors[np.sort(first)]
  for _ in range(NUM_ITERATIONS):
    nearest = assign(vectors, centroids)
    order = np.argsort(nearest, kind='stable')
    there, starts = np.unique(nearest[order], return_index=True)
    centroids[there] = unit(np.add.reduceat(vectors[order], starts, axis=0))
  return centroids
