# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention with relative positions, as in all four attentions of RETRO.

Borgeaud et al. 2022, section B.1.2, after Transformer-XL (Dai et al. 2019):

  logit(i, j) = ((q_i + u) . k_j + (q_i + w) . (R(d(i, j)) W_R)) / sqrt(K)

with R(d) the sines, then the cosines, of d at D frequencies, D the width of the
query stream. d(i, j) = i - j + offset takes few distinct values, so the position
term is one product with those, moved into place by a reshape; it is computed
once for all neighbors that share an attention.

Dimension key: N rows (sequences or chunks), Q queries, S keys, H heads, K head
width, D model width, T distinct distances.
"""

import dataclasses
import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array
from jaxtyping import Bool
from jaxtyping import Float
import numpy as np

from retrieval import partitioning


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionConfig:
  """One attention's sizes and choices; the paper's are the defaults."""

  num_heads: int  # H
  head_dim: int  # K; num_heads * head_dim need not be the model width
  relative_positions: bool = True  # False: content logits alone
  position_biases: bool = True  # Transformer-XL's u and w
  projection_biases: bool = False  # biases of q, k, v and o
  scale_logits: bool = True  # divide by sqrt(head_dim)
  max_distance: int = 0  # clamp |d| to this; 0: no clamp
  position_base: float = 10000.0  # longest wavelength / (2 pi)
  init_scale: float = 0.02  # standard deviation of every matrix but o
  output_init_scale: float = 0.02  # standard deviation of o
  dtype: str = 'float32'  # compute
  param_dtype: str = 'float32'


def accumulation_dtype(dtype: str) -> jnp.dtype:
  """Type of softmax, norms and losses: float32, or float64 if asked for."""
  return jnp.promote_types(dtype, jnp.float32)


class RMSNorm(nn.Module):
  """x / rms(x) * scale (Zhang and Sennrich 2019), in float32."""

  epsilon: float
  dtype: str
  param_dtype: str

  @nn.compact
  def __call__(self, x: Float[Array, '... D']) -> Float[Array, '... D']:
    """Normalizes the last axis of `x`."""
    scale = self.param(
      'scale',
      partitioning.partitioned(nn.initializers.ones, 'embed'),
      (x.shape[-1],),
      self.param_dtype,
    )
    wide = accumulation_dtype(self.dtype)
    x = x.astype(wide)
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    y = x * jax.lax.rsqrt(mean_square + self.epsilon) * scale.astype(wide)
    return y.astype(self.dtype)


@functools.lru_cache(maxsize=64)
def position_vectors(
  first: int, last: int, width: int, base: float, max_distance: int = 0
) -> np.ndarray:
  """R(d) for d = first, first - 1, ..., last, computed in float64.

  Args:
    first: the largest distance.
    last: the smallest distance.
    width: D, width of the query stream. An odd one drops the last cosine.
    base: of the frequencies base ** (-2 a / D).
    max_distance: clamp on |d|, 0 for none.

  Returns:
    [first - last + 1, D] float64. Sines, then cosines.
  """
  distances = np.arange(first, last - 1, -1, dtype=np.float64)
  if max_distance:
    distances = np.clip(distances, -max_distance, max_distance)
  frequencies = base ** (-np.arange(0, width, 2, dtype=np.float64) / width)
  angles = distances[:, None] * frequencies
  vectors = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
  return vectors[:, :width]


def shift_to_keys(
  by_distance: Float[Array, '*N Q T'], num_keys: int
) -> Float[Array, '*N Q S']:
  """Moves logits by distance to the keys at those distances.

  Column c of the input stands for distance (first - c), first being that of the
  last query and key 0; so out[i, j] = in[i, Q - 1 - i + j]. In row-major order
  this is a slice of rows one shorter, and no gather.

  Args:
    by_distance: [*N, Q, T] with T > S.
    num_keys: S. Where Q - 1 - i + j >= T the result is meaningless (the caller
      masks it).

  Returns:
    [*N, Q, S].
  """
  *batch, num_queries, num_distances = by_distance.shape
  flat = by_distance.reshape(*batch, num_queries * num_distances)
  start = num_queries - 1
  flat = flat[..., start : start + num_queries * (num_distances - 1)]
  rows = flat.reshape(*batch, num_queries, num_distances - 1)
  return rows[..., :num_keys]


def _block_length(num_queries: int, longest: int = 8) -> int:
  """The largest divisor up to `longest`."""
  return max(b for b in range(1, longest + 1) if num_queries % b == 0)


class RelativeAttention(nn.Module):
  """Multi-head attention of one stream to another, or to itself.

  Queries may be several copies of positions 0..Q-1 (the encoder reads k
  neighbors against one chunk) and keys several copies of positions 0..S-1
  (chunked cross-attention reads one chunk against k neighbors): every copy has
  the same distances.
  """

  config: AttentionConfig

  def _matrix(self, name, shape, axes, scale=None):
    init = nn.initializers.normal(scale or self.config.init_scale)
    return self.param(
      name,
      partitioning.partitioned(init, *axes),
      shape,
      self.config.param_dtype,
    ).astype(self.config.dtype)

  def _vector(self, name, size, axis):
    return self.param(
      name,
      partitioning.partitioned(nn.initializers.zeros, axis),
      (size,),
      self.config.param_dtype,
    ).astype(self.config.dtype)

  def _project(self, name, x):
    """[N, L, D] -> [N, H, L, K]."""
    c = self.config
    width = c.num_heads * c.head_dim
    y = x @ self._matrix(name, (x.shape[-1], width), ('embed', 'heads'))
    if c.projection_biases:
      y = y + self._vector(f'{name}_bias', width, 'heads')
    y = y.reshape(*x.shape[:-1], c.num_heads, c.head_dim)
    return y.transpose(0, 2, 1, 3)

  def _position_logits(self, q, width, num_queries, num_keys, offset, causal):
    """[N, H, copies * Q, K] -> [N, H, copies, Q, S]."""
    c = self.config
    first = offset + num_queries - 1
    last = offset - 1 if causal else offset - num_keys
    vectors = position_vectors(
      first, last, width, c.position_base, c.max_distance
    )
    inner = c.num_heads * c.head_dim
    keys = vectors.astype(c.dtype) @ self._matrix(
      'r', (width, inner), ('embed', 'heads')
    )
    keys = keys.reshape(-1, c.num_heads, c.head_dim)
    # Short blocks of queries each see few distances; a causal row has no more
    # distances than keys.
    block = num_queries if causal else _block_length(num_queries)
    num_blocks = num_queries // block
    size = len(keys) - num_queries + block
    starts = [num_queries - (i + 1) * block for i in range(num_blocks)]
    keys = jnp.stack([keys[start : start + size] for start in starts])
    q = q.reshape(*q.shape[:2], -1, num_blocks, block, q.shape[-1])
    logits = jnp.einsum('NHCIQK,ITHK->NHCIQT', q, keys)
    logits = shift_to_keys(logits, num_keys)
    return logits.reshape(*logits.shape[:3], num_queries, num_keys)

  @nn.compact
  def __call__(
    self,
    queries: Float[Array, 'N Qs D'],
    keys: Float[Array, 'N Ss E'],
    *,
    query_length: int | None = None,
    key_length: int | None = None,
    offset: int = 0,
    causal: bool = False,
    mask: Bool[Array, 'N _ Ss'] | None = None,
  ) -> Float[Array, 'N Qs D']:
    """Attends from `queries` to `keys`.

    Args:
      queries: [N, copies * Q, D]. The query stream, already normalized.
      keys: [N, copies * S, E]. The key stream; keys and values come from it.
      query_length: Q, positions in one copy of the queries; default all.
      key_length: S, positions in one copy of the keys; default all.
      offset: d(i, j) = i - j + offset.
      causal: True allows j <= i only (no copies then).
      mask: [N, 1 or copies * Q, copies * S]. False hides a key. A query without
        any key gets zeros.

    Returns:
      [N, copies * Q, D]. Without residual.
    """
    c = self.config
    wide = accumulation_dtype(c.dtype)
    rows, total_queries, width = queries.shape
    total_keys = keys.shape[1]
    query_length = query_length or total_queries
    key_length = key_length or total_keys
    q = self._project('q', queries)
    k = self._project('k', keys)
    v = self._project('v', keys)
    if c.scale_logits:
      q = q * c.head_dim**-0.5

    def biased(name):
      if not c.position_biases:
        return q
      bias = self._vector(name, c.num_heads * c.head_dim, 'heads')
      if c.scale_logits:
        bias = bias * c.head_dim**-0.5
      return q + bias.reshape(c.num_heads, 1, c.head_dim)

    logits = jnp.einsum('NHQK,NHSK->NHQS', biased('u'), k)
    if c.relative_positions:
      position = self._position_logits(
        biased('w'), width, query_length, key_length, offset, causal
      )
      copies = (
        rows,
        c.num_heads,
        total_queries // query_length,
        query_length,
        total_keys // key_length,
        key_length,
      )
      logits = logits.reshape(copies) + position[..., None, :]
      logits = logits.reshape(rows, c.num_heads, total_queries, total_keys)
    allowed = None if mask is None else mask[:, None]
    if causal:
      triangle = np.tri(total_queries, total_keys, dtype=bool)
      allowed = triangle if allowed is None else allowed & triangle
    logits = logits.astype(wide)
    if allowed is not None:
      logits = jnp.where(allowed, logits, jnp.finfo(wide).min)
    weights = jax.nn.softmax(logits, axis=-1).astype(c.dtype)
    mixed = jnp.einsum('NHQS,NHSK->NHQK', weights, v)
    mixed = mixed.transpose(0, 2, 1, 3).reshape(rows, total_queries, -1)
    out = mixed @ self._matrix(
      'o', (mixed.shape[-1], width), ('heads', 'embed'), c.output_init_scale
    )
    if c.projection_biases:
      out = out + self._vector('o_bias', width, 'embed')
    if mask is not None and not causal:
      out = jnp.where(mask.any(axis=-1)[..., None], out, 0)
    return out
