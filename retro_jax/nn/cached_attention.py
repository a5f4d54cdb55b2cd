# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention of one token at a time, or of a few, for decoding.

Dimension key: B rows, T tokens, S keys, D query width, E key width, Q query
positions, A rows that are updated, U keys that are.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval.kernels import products
from retro_jax.nn import attention


class CachedAttention(attention.RelativeAttention):
  """The same attention of one query a row, or of T; its keys are in the cache.

  The collection 'cache' holds their projections k and v, and relative keys, as
  RelativeAttention left them there for a whole sequence. So a query costs its
  own projections, and a product with each key and each distance.
  """

  @nn.compact
  def __call__(
    self,
    query: Float[Array, 'B T D'],
    index: Int[Array, ' B'],
    mask: Bool[Array, 'B T S'],
    *,
    query_length: int,
    key_length: int,
    update: tuple[Float[Array, 'A U E'], tuple] | None = None,
    positions: Int[Array, 'B T'] | None = None,
  ) -> Float[Array, 'B T D']:
    """Attend from `query` to the cached keys.

    Args:
      query: [B, T, D]. Positions of the query stream, already normalized; one
        where positions are relative.
      index: [B]. Which of the positions 0..Q-1 the first one is.
      mask: [B, T, S]. False hides a key. A query without any key gets zeros.
      query_length: Q.
      key_length: positions in one copy of the keys.
      update: new part [A, U, E] of the key stream, and which rows and keys of
        the cache it replaces: an index of [B, S].
      positions: [B, T]. Of query and update, which are the same tokens, where
        the config has a rotary_base.

    Returns:
      [B, T, D]. Without residual.
    """
    c = self.config
    if update is not None:
      keys, place = update
      for name, new in zip('kv', self._project('kv', keys), strict=True):
        cached = self.get_variable('cache', name)
        if name == 'k':
          new = self._turned(self._normed('k_norm', new), positions)
        cached = cached.at[(slice(None), *place)].set(new)
        self.put_variable('cache', name, cached)
    (q,) = self._project('q', query)
    q = self._turned(self._normed('q_norm', q) * c.scale, positions)
    bias = None
    if c.relative_positions:
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
