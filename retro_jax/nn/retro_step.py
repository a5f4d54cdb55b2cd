# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO for the next token of each row, with a cache, for decoding.

Dimension key: B batch, L tokens, M chunk length, N neighbors, R neighbor length, A
rows that are updated, V vocabulary.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retro_jax.nn import cca, layers, retro


class RetroStep(retro.Retro):
  """Retro for the next token of each row, with the parameters and cache of Retro.

  The cache holds, for every token of the L that Retro was applied to, keys and
  values of the decoder's self-attention and the activations that condition the
  encoder; keys and values of CCA for the chunk that the next token reads; and
  where each row's document begins, before which nothing is read.
  """

  @nn.compact
  def __call__(
    self,
    tokens: Int[Array, ' B'],
    position: Int[Array, ' B'],
    rows: Int[Array, ' A'] | None = None,
    neighbors: Int[Array, 'A N R'] | None = None,
    neighbor_mask: Bool[Array, 'A N R'] | None = None,
  ) -> Float[Array, 'B V']:
    """Logits of each next token, float32; brings the cache up to date.

    Args:
      tokens: one a row.
      position: of the token in its row: one more than that of the last token that
        the cache knows, or the same for a row that does not go on; below L.
      rows: those in which this token completes a chunk, in any order, maybe
        repeated; None when no chunk was completed or retrieval is off.
      neighbors: tokens that these chunks retrieved.
      neighbor_mask: False for missing neighbors and padding.
    """
    c = self.config
    cache = self.variables['cache']
    first = cache['first']
    length = cache['layer_1_attn']['attention']['k'].shape[2]
    cca_layers = c.cca_layers if 'neighbor_mask' in cache else ()
    embedding = self._table('embedding', c.d_model)
    x = self._embedder(embedding)(tokens[:, None], (position - first)[:, None])
    found = self._look_up(tokens, position)
    encoded = mask = None
    for p in range(1, c.num_layers + 1):
      x = layers.CachedSelfAttention(c, name=f'layer_{p}_attn')(
        self._recall(p, x, found), first, position, length
      )
      if cca_layers and p == min(cca_layers):
        h, mask = cache['conditioning'], cache['neighbor_mask']
        h = h.at[jnp.arange(len(x)), position].set(x[:, 0])
        if rows is not None:
          mask = mask.at[rows].set(neighbor_mask)
          chunk = position[rows, None] + jnp.arange(1 - c.chunk_length, 1)
          encoded, _ = self._encode(
            embedding,
            h[rows[:, None], chunk],
            neighbors[:, None],
            neighbor_mask[:, None],
            (chunk >= first[rows, None]).astype(jnp.int32),
          )
        self.put_variable('cache', 'conditioning', h)
        self.put_variable('cache', 'neighbor_mask', mask)
      if p in cca_layers:
        x = layers.ReadNeighbors(
          c, cca.CachedCrossAttention, name=f'layer_{p}_cca'
        )(x, False, position, encoded, rows, mask)
      x = layers.FeedForward(c, name=f'layer_{p}_ffw')(x)
    return self._read(embedding, x)[:, 0]
