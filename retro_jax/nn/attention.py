# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention with relative positions, as in all four attentions of RETRO.

Borgeaud et al. 2022, section B.1.2, after Transformer-XL (Dai et al. 2019):

  logit(i, j) = ((q_i + u) . k_j + (q_i + w) . (R(d(i, j)) W_R)) / sqrt(K)

with d(i, j) = i - j + offset; `positions` has R and the second term.

Dimension key: N rows (sequences or chunks), Q queries, S keys, H heads, K head width,
D and E widths of the two streams.
"""

import dataclasses

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from retrieval.kernels import fused_attention, products
from retrieval.nn import partitioning
from retro_jax.nn import positions as positions_lib, primitives


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionConfig:
  """One attention's sizes and choices; the paper's are the defaults."""

  num_heads: int  # H
  head_dim: int  # K; num_heads * head_dim need not be the model width
  num_kv_heads: int = 0  # each for several heads of queries; 0: one for each
  # False: content logits alone, without u and w
  relative_positions: bool = True
  rotary_base: float = 0.0  # positions as angles of q and k; 0: none
  rotary_scaling: positions_lib.RotaryScaling = positions_lib.RotaryScaling()
  head_norms: bool = False  # RMSNorm of each head's queries and keys
  norm_epsilon: float = 1e-6  # of these
  projection_biases: bool = False  # biases of q, k, v and o
  scale_logits: bool = True  # divide by sqrt(head_dim)
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


def causal_blocks(length: int) -> list[tuple[int, int]]:
  """Cut queries into at most four blocks, (start, stop), which skip the keys after."""
  size = max(64, -(-length // 4))
  return [(i, min(i + size, length)) for i in range(0, length, size)]


def is_caching(module: nn.Module) -> bool:
  """Whether `apply` lets the module write to the collection 'cache'."""
  return module.is_mutable_collection('cache') and not module.is_initializing()


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
      for y in primitives.project(
        self, names, x, width, axes, c.init_scale, c.projection_biases
      )
    ]

  def _placed(self, name, x, positions):
    """Queries, scaled, or keys; normalized and at their angles as configured."""
    return self._rotated(self._normed(name, x), positions)

  def _normed(self, name, x):
    c = self.config
    if c.head_norms:
      norm = primitives.Norm(
        c.norm_epsilon, c.dtype, c.param_dtype, name=f'{name}_norm'
      )
      x = norm(x)
    return x * c.scale if name == 'q' else x

  def _rotated(self, x, positions):
    base, scaling = self.config.rotary_base, self.config.rotary_scaling
    return positions_lib.rotate(x, positions, base, scaling) if base else x

  def _for_queries(self, x):
    """Keys or values, each for the heads of queries that share it."""
    times = self.config.num_heads // len(x)
    return x if times == 1 else jnp.repeat(x, times, axis=0)

  def _biased(self, name, q):
    """Q plus Transformer-XL's u or w."""
    c = self.config
    if not c.relative_positions:
      return q
    zeros = partitioning.partitioned(nn.initializers.zeros, 'heads')
    bias = self.param(name, zeros, (c.num_heads * c.head_dim,), c.param_dtype)
    bias = bias.astype(c.dtype) * c.scale
    return q + bias.reshape(c.num_heads, 1, 1, c.head_dim)

  def _relative_keys(self, first, last, width):
    """R(d) W_R for d from `first` down to `last`, [H, first - last + 1, K]."""
    c = self.config
    vectors = positions_lib.vectors_of(
      first, last, width, c.position_base, c.dtype
    )
    inner, axes = c.num_heads * c.head_dim, ('embed', 'heads')
    (keys,) = primitives.project(
      self, ['r'], vectors, inner, axes, c.init_scale
    )
    return keys.reshape(-1, c.num_heads, c.head_dim).transpose(1, 0, 2)

  def _output(self, mixed, width):
    """[H, N, L, K] -> [N, L, D]."""
    c = self.config
    mixed = mixed.transpose(1, 2, 0, 3)
    mixed = mixed.reshape(*mixed.shape[:2], -1)
    axes, scale = ('heads', 'embed'), c.output_init_scale
    (out,) = primitives.project(
      self, ['o'], mixed, width, axes, scale, c.projection_biases
    )
    return out

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
    """Attend from `queries` to `keys`, both normalized; without residual.

    Args:
      queries: Q positions, or copies of them.
      keys: of keys and values: S positions, or copies of them.
      query_length: Q; default all.
      key_length: S; default all.
      offset: d(i, j) = i - j + offset.
      causal: True allows j <= i only (no copies and no offset then).
      segments: of queries and of keys, numbers from 0 on or booleans. A query
        sees the keys of its segment alone; one that sees no key gets zeros.
      cached_rows: rows whose keys CachedAttention is to find in the collection
        'cache', if that may change.
      positions: of queries and keys, which are the same tokens, where the config
        has a rotary_base.
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
    q = self._placed('q', q, positions)
    k = self._placed('k', k, positions)
    with_u = self._biased('u', q)
    by_position = None
    if c.relative_positions:
      with_w = self._biased('w', q)  # before r: the order decides the draws
      last = -causal_blocks(total)[0][1] if causal else offset - key_length
      first = offset + query_length - 1
      by_position = with_w, self._relative_keys(first, last, width)
    if cached_rows is not None and is_caching(self):
      self.put_variable('cache', 'k', k[:, cached_rows])
      self.put_variable('cache', 'v', v[:, cached_rows])
      if by_position is not None:
        self.put_variable('cache', 'relative', by_position[1])
    mixed, mask = self._mixed(
      with_u, k, v, by_position, segments, causal, query_length, key_length
    )
    out = self._output(mixed, width)
    if mask is not None and not causal:
      out = jnp.where(mask.any(axis=-1)[..., None], out, 0)
    return out

  def _mixed(self, q, k, v, by_position, segments, causal, *lengths):
    """The mixed values, by a kernel if it suits, and the mask of segments."""
    k, v, mask = self._for_queries(k), self._for_queries(v), None
    if segments is not None:
      mask = segments[0][:, :, None] == segments[1][:, None]
    mixed = self._fused(q, k, v, by_position, segments, causal, *lengths)
    if mixed is None and causal:
      mixed = self._mix_causal(q, k, v, by_position, mask)
    elif mixed is None:
      mixed = self._mix(q, k, v, by_position, mask, *lengths)
    return mixed, mask

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

  def _mix_causal(self, q, k, v, by_position, mask):
    """`_mix` of each of a few blocks of the queries, without the keys after it."""
    mixed, total = [], q.shape[2]
    for start, stop in causal_blocks(total):
      part = slice(start, stop)
      seen = jnp.tri(stop - start, stop, start, dtype=bool)[None]
      if mask is not None:
        seen = seen & mask[:, part, :stop]
      of_block = None
      if by_position is not None:
        first = total - stop
        relative = by_position[1][:, first : first + 2 * stop - start]
        of_block = by_position[0][:, :, part], relative
      lengths = stop - start, stop
      block = q[:, :, part], k[:, :, :stop], v[:, :, :stop]
      mixed.append(self._mix(*block, of_block, seen, *lengths, causal=True))
    return jnp.concatenate(mixed, axis=2)

  def _mix(
    self, q, k, v, by_position, mask, query_length, key_length, causal=False
  ):
    """The mixed values, with all logits in memory."""
    bias = None
    if by_position is not None:
      lengths = query_length, key_length
      bias = positions_lib.logits(*by_position, *lengths, causal)
    mask = None if mask is None else mask[None]
    if self._keeps_weights():
      self.sow('weights', 'weights', products.weights(q, k, bias, mask))
    return products.attend(q, k, v, bias, mask)


class CachedAttention(RelativeAttention):
  """The same attention of the next token of each row, for decoding.

  The collection 'cache' holds the projected keys, values and relative keys that
  RelativeAttention left there for a whole sequence. So a query costs only
  its projections, and a product with each key and each distance.
  """

  @nn.compact
  def __call__(
    self,
    query: Float[Array, 'N 1 D'],
    index: Int[Array, ' N'],
    mask: Bool[Array, 'N 1 Ss'],
    *,
    query_length: int,
    key_length: int,
    update: tuple[Float[Array, 'A U E'], tuple] | None = None,
    positions: Int[Array, 'N 1'] | None = None,
  ) -> Float[Array, 'N 1 D']:
    """Attend from `query`, normalized, to the cached keys; without residual.

    Args:
      index: position of each row's query, of 0..Q-1.
      mask: False hides a key. A query without any key gets zeros.
      query_length: Q.
      key_length: S, positions in one copy of the keys.
      update: new part of the key stream, and which rows and keys of the cache it
        replaces: an index of [N, copies * S].
      positions: of query and update, which are the same tokens, where the config
        has a rotary_base.
    """
    if update is not None:
      keys, place = update
      k, v = self._project('kv', keys)
      k = self._placed('k', k, positions)
      for name, new in (('k', k), ('v', v)):
        cached = self.get_variable('cache', name)
        cached = cached.at[(slice(None), *place)].set(new)
        self.put_variable('cache', name, cached)
    (q,) = self._project('q', query)
    q = self._placed('q', q, positions)
    bias = None
    if self.config.relative_positions:
      relative = self.get_variable('cache', 'relative')
      logits = products.scores(self._biased('w', q)[:, :, 0], relative)
      # As in shift_to_keys, of which this is row `index`.
      columns = query_length - 1 - index[:, None] + jnp.arange(key_length)
      bias = jnp.take_along_axis(logits, columns[None], axis=-1)[:, :, None]
    mixed = products.attend(
      self._biased('u', q),
      self._for_queries(self.get_variable('cache', 'k')),
      self._for_queries(self.get_variable('cache', 'v')),
      bias,
      mask[None],
    )
    out = self._output(mixed, query.shape[-1])
    return jnp.where(mask.any(axis=-1)[..., None], out, 0)
