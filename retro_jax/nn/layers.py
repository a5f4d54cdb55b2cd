# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The residual branches of algorithm 1: ATTN, FFW, CA and CCA.

Each normalizes its input, computes, drops out and adds (pre-norm, as GPT-2).

Dimension key: B batch, L tokens, D model width, C chunks, M chunk length, N
neighbors, R neighbor length, E encoder width.
"""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from retrieval.nn import partitioning
from retro_jax.nn import attention, cached_attention, cca
from retro_jax.nn.config import ACTIVATIONS, RetroConfig


def norm(config: RetroConfig, name: str) -> attention.RMSNorm:
  """A norm as the config wants it."""
  kind = (
    attention.LayerNorm if config.decoder.norm == 'layer' else attention.RMSNorm
  )
  return kind(config.norm_epsilon, config.dtype, config.param_dtype, name=name)


class LearnedPositions(nn.Module):
  """Adds a vector of a table for each position, as GPT-2 does."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self, x: Float[Array, 'B L D'], positions: Int[Array, '#B L']
  ) -> Float[Array, 'B L D']:
    """Add rows `positions` of the table to `x`."""
    c = self.config
    init = nn.initializers.normal(c.init_scale)
    table = self.param(
      'table',
      partitioning.partitioned(init, None, 'embed'),
      (c.decoder.max_positions, x.shape[-1]),
      c.param_dtype,
    )
    return x + jnp.take(table, positions, axis=0, mode='clip').astype(c.dtype)


class FeedForward(nn.Module):
  """The branch FFW: W2 f(W1 norm(x)), or gated: W2 (f(W1 norm(x)) W3 norm(x))."""

  config: RetroConfig
  d_ff: int
  branches: int
  dropout_rate: float

  @nn.compact
  def __call__(
    self, x: Float[Array, '*B D'], train: bool = False
  ) -> Float[Array, '*B D']:
    """Add the branch to `x`."""
    c = self.config
    width = x.shape[-1]
    out_scale = c.output_scale(self.branches)
    h = norm(c, 'norm')(x)
    self.sow('intermediates', 'normed', h)  # the last layer's: kNN-LM's keys
    linear = functools.partial(attention.project, self, bias=c.ff_biases)
    names = ('w1', 'w3') if c.decoder.gated else ('w1',)
    y, *factors = linear(names, h, self.d_ff, ('embed', 'mlp'), c.init_scale)
    y = ACTIVATIONS[c.activation](y)
    for factor in factors:
      y = y * factor
    (y,) = linear(['w2'], y, width, ('mlp', 'embed'), out_scale)
    return x + nn.Dropout(self.dropout_rate, deterministic=not train)(y)


class Attention(nn.Module):
  """The branch ATTN, the decoder's (causal) and the encoder's, or the branch CA."""

  config: RetroConfig
  attention_config: attention.AttentionConfig
  causal: bool
  dropout_rate: float

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    keys: Float[Array, 'B S E'] | None,
    segments: tuple[jax.Array, jax.Array] | None,
    train: bool = False,
    positions: Int[Array, '#B L'] | None = None,
  ) -> Float[Array, 'B L D']:
    """Add the branch to `x`.

    Args:
      x: [B, L, D]. With `keys`, a row holds all neighbors of a chunk.
      keys: [B, S, E]. The chunks that neighbors read; None is `x` itself.
      segments: as of RelativeAttention.
      positions: as of RelativeAttention.
    """
    y = norm(self.config, 'norm')(x)
    y = attention.RelativeAttention(self.attention_config, name='attention')(
      y,
      y if keys is None else keys,
      query_length=None if keys is None else self.config.neighbor_length,
      causal=self.causal,
      segments=segments,
      cached_rows=slice(None) if self.causal else None,
      positions=positions,
    )
    return x + nn.Dropout(self.dropout_rate, deterministic=not train)(y)


class CachedSelfAttention(nn.Module):
  """The decoder's branch ATTN for the next tokens, with a cache of L keys."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B T D'],
    first: Int[Array, ' B'],
    position: Int[Array, ' B'],
    length: int,
  ) -> Float[Array, 'B T D']:
    """Add the branch to `x`, the tokens from `position` on of first..length-1."""
    y = norm(self.config, 'norm')(x)
    places = position[:, None] + jnp.arange(x.shape[1])
    keys = jnp.arange(length)
    mask = keys >= first[:, None, None]
    mask &= keys <= places[..., None]
    config = self.config.decoder_attention()
    return x + cached_attention.CachedAttention(config, name='attention')(
      y,
      position,
      mask,
      query_length=length,
      key_length=length,
      update=(y, (jnp.arange(len(x))[:, None], places)),
      positions=places - first[:, None],
    )


class ReadNeighbors(nn.Module):
  """The branch CCA: tokens read the neighbors of the last complete chunk."""

  config: RetroConfig
  # or CachedCrossAttention, for one token a row
  kind: type[nn.Module] = cca.ChunkedCrossAttention

  @nn.compact
  def __call__(
    self, x: Float[Array, 'B L D'], train: bool, *read: Array | None
  ) -> Float[Array, 'B L D']:
    """Add the branch to `x`; `read` are the other arguments of the kind."""
    c = self.config
    attend = self.kind(c.decoder_attention(cross=True), name='cca')
    y = attend(norm(c, 'norm')(x), *read, chunk_length=c.chunk_length)
    return x + nn.Dropout(c.dropout_rate, deterministic=not train)(y)
