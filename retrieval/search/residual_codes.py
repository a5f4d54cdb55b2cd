# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compression of unit vectors: nearest centroid and a coarse residual.

Santhanam et al. 2021 (ColBERTv2), section 3.3. Spherical k-means gives the centroids.
Each value of a residual becomes the number of its bucket; the buckets hold equally
many values of a sample, and a bucket is read as the median of its values.

Dimension key: n vectors, d values, C centroids, b bits.
"""

import dataclasses
from typing import Literal

from jaxtyping import Float, Int, Integer, UInt8
import numpy as np

from retrieval import settings

_AT_ONCE = 4096  # vectors compared with all centroids together
_BYTE = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodecConfig:
  """Sizes of the codes, and iterations of k-means."""

  # C; 0: the power of two at most 16 sqrt(vectors to be stored), as in the paper
  num_centroids: settings.SizeOrZero = 0
  num_bits: Literal[1, 2, 4] = 2  # b, of each value of a residual
  num_iterations: settings.Size = 4  # of k-means (released code: 4)
  seed: settings.Seed = 0  # of the first centroids

  __post_init__ = settings.check


@dataclasses.dataclass(frozen=True, eq=False)
class Codec:
  """Centroids and buckets."""

  centroids: Float[np.ndarray, 'C d']  # float32, of length 1
  cutoffs: Float[np.ndarray, ' c']  # [2^b - 1] float32 between buckets
  levels: Float[np.ndarray, ' l']  # [2^b] float32 value of each bucket

  @property
  def num_bits(self) -> int:
    """The bits of a value."""
    return len(self.levels).bit_length() - 1

  def encode(
    self, vectors: Float[np.ndarray, 'n d']
  ) -> tuple[Int[np.ndarray, ' n'], UInt8[np.ndarray, 'n bytes']]:
    """Return the centroid of each vector, and its residual's packed buckets."""
    nearest = assign(vectors, self.centroids)
    residuals = vectors - self.centroids[nearest]
    buckets = np.zeros(residuals.shape, np.uint8)
    for cutoff in self.cutoffs:
      buckets += residuals >= cutoff
    per_byte = _BYTE // self.num_bits
    parts = buckets.reshape(len(vectors), -1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(self.num_bits)
    return nearest, np.bitwise_or.reduce(parts << shifts, axis=-1)

  def decode(
    self,
    nearest: Integer[np.ndarray, ' n'],
    codes: UInt8[np.ndarray, 'n bytes'],
  ) -> Float[np.ndarray, 'n d']:
    """Return vectors of length 1, float32."""
    shifts = np.arange(_BYTE // self.num_bits) * self.num_bits
    buckets = (np.arange(256)[:, None] >> shifts) & (len(self.levels) - 1)
    vectors = self.levels[buckets][codes].reshape(len(codes), -1)
    vectors += self.centroids[nearest]
    return unit(vectors)


def train(
  vectors: Float[np.ndarray, 'n d'], config: CodecConfig, num_stored: int = 0
) -> Codec:
  """Fit a codec to a sample of vectors of length 1.

  Args:
    num_stored: vectors that will be stored, which decide C where the config does
      not; 0: as many as the sample has. C is at most n.

  Raises:
    ValueError: where d values of b bits are no whole bytes.
  """
  n, d = vectors.shape
  if d * config.num_bits % _BYTE:
    raise ValueError(
      f'Vectors of {d} values at {config.num_bits} bits: expected whole bytes.'
    )
  count = config.num_centroids
  if not count:  # a power of two
    count = 2 ** (int(16 * (num_stored or n) ** 0.5).bit_length() - 1)
  centroids = _spherical_k_means(vectors, min(count, n), config)
  residuals = vectors - centroids[assign(vectors, centroids)]
  shares = np.arange(2 * 2**config.num_bits + 1) / (2 * 2**config.num_bits)
  edges = np.quantile(residuals, shares[1:-1]).astype(np.float32)
  return Codec(centroids, edges[1::2], edges[::2])


def assign(
  vectors: Float[np.ndarray, 'n d'], centroids: Float[np.ndarray, 'C d']
) -> Int[np.ndarray, ' n']:
  """Return the centroid of the largest inner product with each vector, int32."""
  nearest = np.empty(len(vectors), np.int32)
  for low in range(0, len(vectors), _AT_ONCE):
    part = slice(low, low + _AT_ONCE)
    nearest[part] = (vectors[part] @ centroids.T).argmax(axis=1)
  return nearest


def unit(vectors: Float[np.ndarray, 'n d']) -> Float[np.ndarray, 'n d']:
  """Return vectors scaled to length 1; zeros stay zeros."""
  lengths = np.sqrt(np.einsum('nd,nd->n', vectors, vectors))
  return vectors / np.maximum(lengths, 1e-12)[:, None]


def _spherical_k_means(
  vectors: np.ndarray, num_centroids: int, config: CodecConfig
) -> np.ndarray:
  """Return centroids [C, d]; one that loses all its vectors stays."""
  rng = np.random.default_rng(config.seed)
  first = rng.choice(len(vectors), num_centroids, replace=False)
  centroids = vectors[np.sort(first)]
  for _ in range(config.num_iterations):
    nearest = assign(vectors, centroids)
    order = np.argsort(nearest, kind='stable')
    there, starts = np.unique(nearest[order], return_index=True)
    centroids[there] = unit(np.add.reduceat(vectors[order], starts, axis=0))
  return centroids
