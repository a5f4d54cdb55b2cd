# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Further tokens of rows that a decoder has begun, several at a time.

Dimension key: B batch, L tokens, V vocabulary.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from retro_jax.nn import layers, retro


class RetroTail(retro.Retro):
  """A public decoder for further tokens of each row, with the cache of Retro."""

  @nn.compact
  def __call__(
    self,
    tokens: Int[Array, 'B L'],
    position: Int[Array, ' B'],
    last: Int[Array, ' B'],
  ) -> Float[Array, 'B V']:
    """Logits after one of the tokens; brings the cache up to date.

    Args:
      tokens: [B, L].
      position: [B]. Of the first of them: one more than that of the last token
        that the cache knows.
      last: [B]. Which of the tokens is read out; those after it are padding,
        which the next tokens replace.

    Returns:
      [B, V] float32.

    Raises:
      ValueError: for relative positions, or a model that retrieves.
    """
    c = self.config
    if c.cca_layers or c.decoder.positions == 'relative':
      raise ValueError(
        f'cca_layers {c.cca_layers} and {c.decoder.positions} positions: expected '
        'a decoder without retrieval, of rotary or absolute positions.'
      )
    cache = self.variables['cache']
    first = cache['first']
    length = cache['layer_1_attn']['attention']['k'].shape[2]
    embedding = self._table('embedding', c.d_model)
    x = retro.embed(embedding, tokens, c.dtype)
    if c.decoder.positions == 'absolute':
      places = (position - first)[:, None] + jnp.arange(tokens.shape[1])
      x = layers.LearnedPositions(c, name='positions')(x, places)
    for p in range(1, c.num_layers + 1):
      x = layers.CachedSelfAttention(c, name=f'layer_{p}_attn')(
        x, first, position, length
      )
      x = layers.FeedForward(
        c, c.d_ff, c.branches, c.dropout_rate, name=f'layer_{p}_ffw'
      )(x)
    x = jnp.take_along_axis(x, last[:, None, None], axis=1)
    return self._read(embedding, x)[1][:, 0]
