# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention with relative positions, as in all four attentions of RETRO.

Borgeaud et al. 2022, section B.1.2, after Transformer-XL (Dai et al. 2019):

  logit(i, j) = ((q_i + u) . k_j + (q_i + w) . (R(d(i, j)) W_R)) / sqrt(K)

with R(d) the sines, then the cosines, of d at D frequencies, D the width of the
query stream. d(i, j) = i - j + offset takes few distinct values, so the
position term is one product with those, moved into place by a reshape; it is
computed once for all neighbors that share an attention.

Dimension key: N rows (sequences or chunks), Q queries, S keys, H heads, K head
width, D model width, T distinct distances.
"""

from collections.abc import Sequence
import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped
import numpy.typing as npt

from retrieval.kernels import fused_attention, products
from retrieval.nn import partitioning
from retro_jax.nn import distances, positions as positions_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionConfig:
  """One attention's sizes and choices; the paper's are the defaults."""

  num_heads: int  # H
  head_dim: int  # K; num_heads * head_dim need not be the model width
  num_kv_heads: int = 0  # each for several heads of queries; 0: one for each
  relative_positions: bool = True  # False: content logits alone
  rotary_base: float = 0.0  # positions as angles of q and k; 0: none
  head_norms: bool = False  # RMSNorm of each head's queries and keys
  norm_epsilon: float = 1e-6  # of these
  position_biases: bool = True  # Transformer-XL's u and w
  projection_biases: bool = False  # biases of q, k, v and o
  scale_logits: bool = True  # divide by sqrt(head_dim)
  max_distance: int = 0  # clamp |d| to this; 0: no clamp
  position_base: float = 10000.0  # longest wavelength / (2 pi)
  init_scale: float = 0.02  # standard deviation of every matrix but o
  output_init_scale: float = 0.02  # standard deviation of o
  dtype: str = 'float32'  # compute
  param_dtype: str = 'float32'

  @property
  def scale(self) -> float:
    """Factor of the logits."""
    return self.head_dim**-0.5 if self.scale_logits else 1.0

  @property
  def heads(self) -> dict[str, int]:
    """Heads of queries, keys and values."""
    shared = self.num_kv_heads or self.num_heads
    return {'q': self.num_heads, 'k': shared, 'v': shared}


def accumulation_dtype(dtype: npt.DTypeLike) -> jnp.dtype:
  """Type of softmax, norms and losses: float32, or float64 if asked for."""
  return jnp.promote_types(dtype, jnp.float32)


class RMSNorm(nn.Module):
  """x / rms(x) * scale (Zhang and Sennrich 2019), in float32."""

  epsilon: float
  dtype: str
  param_dtype: str

  @nn.compact
  def __call__(self, x: Float[Array, '... D']) -> Float[Array, '... D']:
    """Normalize the last axis of `x`."""
    scale = self._vector('scale', nn.initializers.ones, x.shape[-1])
    return self._normalize(x, scale).astype(self.dtype)

  def _vector(self, name, init, width):
    init = partitioning.partitioned(init, 'embed')
    vector = self.param(name, init, (width,), self.param_dtype)
    return vector.astype(accumulation_dtype(self.dtype))

  def _normalize(self, x, scale):
    x = x.astype(scale.dtype)
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + self.epsilon) * scale


class LayerNorm(RMSNorm):
  """The same of x less its mean, and a bias (Ba et al. 2016)."""

  @nn.compact
  def __call__(self, x: Float[Array, '... D']) -> Float[Array, '... D']:
    """Normalize the last axis of `x`."""
    scale = self._vector('scale', nn.initializers.ones, x.shape[-1])
    bias = self._vector('bias', nn.initializers.zeros, x.shape[-1])
    x = x.astype(scale.dtype)
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    return (self._normalize(x, scale) + bias).astype(self.dtype)


def causal_blocks(length: int) -> list[tuple[int, int]]:
  """Cut queries so that each block skips the keys after it.

  Returns:
    (start, stop) of at most four blocks of at least 64 queries but the last.
  """
  size = max(64, -(-length // 4))
  return [(i, min(i + size, length)) for i in range(0, length, size)]


def is_caching(module: nn.Module) -> bool:
  """Whether `apply` lets the module write to the collection 'cache'."""
  return module.is_mutable_collection('cache') and not module.is_initializing()


def project(
  module: nn.Module,
  names: Sequence[str],
  x: Float[Array, '*N D'],
  width: int,
  axes: tuple[str, str],
  scale: float,
  bias: bool = False,
) -> list[Float[Array, '*N F']]:
  """Multiply by parameters of a module, which has a config with both dtypes.

  Args:
    names: of the matrices; their biases are `name`_bias.
    width: F.
    axes: logical axes of the matrices [D, F].
    scale: their initial standard deviation.
    bias: whether biases are added.
  """
  c = module.config
  init = partitioning.partitioned(nn.initializers.normal(scale), *axes)
  zeros = partitioning.partitioned(nn.initializers.zeros, axes[-1])
  matrices, biases = [], []
  for name in names:
    shape = x.shape[-1], width
    matrices.append(module.param(name, init, shape, c.param_dtype))
    if bias:
      biases.append(
        module.param(f'{name}_bias', zeros, (width,), c.param_dtype)
      )
  found = products.linears(x, [matrix.astype(c.dtype) for matrix in matrices])
  if bias:
    found = [
      y + added.astype(c.dtype) for y, added in zip(found, biases, strict=True)
    ]
  return found


class RelativeAttention(nn.Module):
  """Multi-head attention of one stream to another, or to itself.

  Queries may be several copies of positions 0..Q-1 (the encoder reads k
  neighbors against one chunk) and keys several copies of positions 0..S-1
  (chunked cross-attention reads one chunk against k neighbors): every copy has
  the same distances.
  """

  config: AttentionConfig

  def _project(self, names, x):
    """[N, L, D] -> [H, N, L, K] for each of `names`, which have as many heads."""
    c = self.config
    heads = c.heads[names[0]]
    width, axes = heads * c.head_dim, ('embed', 'heads')
    return [
      y.reshape(*x.shape[:-1], heads, c.head_dim).transpose(2, 0, 1, 3)
      for y in project(
        self, names, x, width, axes, c.init_scale, c.projection_biases
      )
    ]

  def _normed(self, name, x):
    """Queries or keys, normalized where the config says so."""
    c = self.config
    if not c.head_norms:
      return x
    return RMSNorm(c.norm_epsilon, c.dtype, c.param_dtype, name=name)(x)

  def _turned(self, x, positions):
    """Queries or keys at their angles, where positions are such."""
    base = self.config.rotary_base
    return x if not base else positions_lib.rotate(x, positions, base)

  def _for_queries(self, x):
    """Keys or values, each for the heads of queries that share it."""
    c = self.config
    times = c.num_heads // c.heads['k']
    return x if times == 1 else jnp.repeat(x, times, axis=0)

  def _biased(self, name, q):
    """Q plus Transformer-XL's u or w."""
    c = self.config
    if not c.position_biases:
      return q
    zeros = partitioning.partitioned(nn.initializers.zeros, 'heads')
    bias = self.param(name, zeros, (c.num_heads * c.head_dim,), c.param_dtype)
    bias = bias.astype(c.dtype) * c.scale
    return q + bias.reshape(c.num_heads, 1, 1, c.head_dim)

  def _relative_keys(self, first, last, width):
    """R(d) W_R for d from `first` down to `last`: [H, T, K]."""
    c = self.config
    vectors = distances.vectors_of(
      first, last, width, c.position_base, c.max_distance, c.dtype
    )
    inner, axes = c.num_heads * c.head_dim, ('embed', 'heads')
    (keys,) = project(self, ['r'], vectors, inner, axes, c.init_scale)
    return keys.reshape(-1, c.num_heads, c.head_dim).transpose(1, 0, 2)

  def _output(self, mixed, width):
    """[H, N, L, K] -> [N, L, D]."""
    c = self.config
    mixed = mixed.transpose(1, 2, 0, 3)
    mixed = mixed.reshape(*mixed.shape[:2], -1)
    axes, scale = ('heads', 'embed'), c.output_init_scale
    return project(self, ['o'], mixed, width, axes, scale, c.projection_biases)[
      0
    ]

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
    segments: tuple[Shaped[Array, '#N #Qs'], Shaped[Array, 'N Ss']]
    | None = None,
    cached_rows: slice | Int[Array, ' _'] | None = None,
    positions: Int[Array, '#N Qs'] | None = None,
  ) -> Float[Array, 'N Qs D']:
    """Attend from `queries` to `keys`.

    Args:
      queries: [N, copies * Q, D]. The query stream, already normalized.
      keys: [N, copies * S, E]. The key stream; keys and values come from it.
      query_length: Q, positions in one copy of the queries; default all.
      key_length: S, positions in one copy of the keys; default all.
      offset: d(i, j) = i - j + offset.
      causal: True allows j <= i only (no copies and no offset then).
      segments: of queries [N or 1, copies * Q or 1] and of keys [N, copies * S],
        numbers from 0 on or booleans. A query sees the keys of its own segment
        alone; one that sees no key gets zeros.
      cached_rows: rows whose keys CachedAttention is to find in the collection
        'cache', if that may change.
      positions: [N, Q] or [1, Q]. Of queries and keys, which are the same
        tokens, where the config has a rotary_base.

    Returns:
      [N, copies * Q, D]. Without residual.
    """
    c = self.config
    total, width = queries.shape[1:]
    query_length = query_length or total
    key_length = key_length or keys.shape[1]
    if keys is queries and c.heads['q'] == c.heads['k']:
      q, k, v = self._project('qkv', queries)
    else:
      (q,) = self._project('q', queries)
      k, v = self._project('kv', keys)
    q = self._turned(self._normed('q_norm', q) * c.scale, positions)
    k = self._turned(self._normed('k_norm', k), positions)
    with_u = self._biased('u', q)
    by_position = None
    if c.relative_positions:
      with_w = self._biased('w', q)  # before r: the order decides the draws
      last = -causal_blocks(total)[0][1] if causal else offset - key_length
      first = offset + query_length - 1
      relative = self._relative_keys(first, last, width)
      by_position = with_w, relative
    if cached_rows is not None and is_caching(self):
      self.put_variable('cache', 'k', k[:, cached_rows])
      self.put_variable('cache', 'v', v[:, cached_rows])
      if c.relative_positions:
        self.put_variable('cache', 'relative', relative)
    k, v = self._for_queries(k), self._for_queries(v)
    lengths = query_length, key_length
    mask = None
    if segments is not None:
      mask = segments[0][:, :, None] == segments[1][:, None]
    mixed = self._fused(with_u, k, v, by_position, segments, causal, *lengths)
    if mixed is None:
      mix = self._mix_causal if causal else self._mix
      mixed = mix(with_u, k, v, by_position, mask, *lengths)
    out = self._output(mixed, width)
    if mask is not None and not causal:
      out = jnp.where(mask.any(axis=-1)[..., None], out, 0)
    return out

  def _keeps_weights(self):
    return self.is_mutable_collection('weights') and not self.is_initializing()

  def _fused(
    self, q, k, v, by_position, segments, causal, query_length, key_length
  ):
    """The mixed values [H, N, copies * Q, K] by a kernel; None where it has none."""
    heads, rows, total, head_dim = q.shape
    by_copies = heads, -1, query_length, head_dim
    suits = fused_attention.suits(by_copies, k.shape, key_length, q.dtype)
    if self._keeps_weights() or not suits:
      return None
    if segments is None:
      segments = (jnp.zeros(x, jnp.int32) for x in ((1, 1), (rows, k.shape[2])))
    query_segments, key_segments = (x.astype(jnp.int32) for x in segments)
    query_segments = jnp.broadcast_to(query_segments, (rows, total))
    if by_position is not None:
      by_position = by_position[0].reshape(by_copies), by_position[1]
    mixed = fused_attention.attend(
      q.reshape(by_copies),
      k,
      v,
      query_segments.reshape(-1, query_length),
      key_segments,
      positions=by_position,
      causal=causal,
      key_length=key_length,
    )
    return mixed.reshape(q.shape)

  def _mix_causal(self, q, k, v, by_position, mask, total, _):
    """`_mix` of each of a few blocks of the queries, without the keys after it."""
    mixed = []
    for start, stop in causal_blocks(total):
      part = slice(start, stop)
      seen = jnp.tri(stop - start, stop, start, dtype=bool)[None]
      if mask is not None:
        seen = seen & mask[:, part, :stop]
      positions = None
      if by_position is not None:
        first = total - stop
        relative = by_position[1][:, first : first + 2 * stop - start]
        positions = by_position[0][:, :, part], relative
      lengths = stop - start, stop
      block = q[:, :, part], k[:, :, :stop], v[:, :, :stop]
      mixed.append(self._mix(*block, positions, seen, *lengths, causal=True))
    return jnp.concatenate(mixed, axis=2)

  def _mix(
    self, q, k, v, by_position, mask, query_length, key_length, causal=False
  ):
    """The mixed values, with all logits in memory."""
    bias = None
    if by_position is not None:
      lengths = query_length, key_length
      bias = distances.logits(*by_position, *lengths, causal)
    mask = None if mask is None else mask[None]
    if self._keeps_weights():
      self.sow('weights', 'weights', products.weights(q, k, bias, mask))
    return products.attend(q, k, v, bias, mask)
