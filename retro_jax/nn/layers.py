# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The residual branches of algorithm 1: ATTN, FFW, CA and CCA.

Each normalizes its input, computes, drops out and adds (pre-norm, as GPT-2).

Dimension key: B batch, L tokens, D model width, C chunks, M chunk length, N
neighbors, R neighbor length, E encoder width.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval.nn import partitioning, products
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
    y = self._linear('w1', h, self.d_ff, ('embed', 'mlp'), c.init_scale)
    y = ACTIVATIONS[c.activation](y)
    if c.decoder.gated:
      y = y * self._linear('w3', h, self.d_ff, ('embed', 'mlp'), c.init_scale)
    y = self._linear('w2', y, width, ('mlp', 'embed'), out_scale)
    return x + nn.Dropout(self.dropout_rate, deterministic=not train)(y)

  def _linear(self, name, x, width, axes, scale):
    c = self.config
    init = nn.initializers.normal(scale)
    shape = (x.shape[-1], width)
    matrix = self.param(
      name, partitioning.partitioned(init, *axes), shape, c.param_dtype
    )
    y = products.linear(x, matrix.astype(c.dtype))
    if c.ff_biases:
      zeros = partitioning.partitioned(nn.initializers.zeros, axes[-1])
      bias = self.param(f'{name}_bias', zeros, (width,), c.param_dtype)
      y = y + bias.astype(c.dtype)
    return y


class SelfAttention(nn.Module):
  """The branch ATTN: the decoder's (causal) and the encoder's."""

  config: RetroConfig
  attention_config: attention.AttentionConfig
  causal: bool
  dropout_rate: float

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    mask: Bool[Array, 'B _ L'] | None,
    train: bool = False,
    positions: Int[Array, '#B L'] | None = None,
  ) -> Float[Array, 'B L D']:
    """Add the branch to `x`; `mask` False hides a key."""
    y = norm(self.config, 'norm')(x)
    y = attention.RelativeAttention(self.attention_config, name='attention')(
      y,
      y,
      causal=self.causal,
      mask=mask,
      cached_rows=slice(None) if self.causal else None,
      positions=positions,
    )
    return x + nn.Dropout(self.dropout_rate, deterministic=not train)(y)


class CachedSelfAttention(nn.Module):
  """The decoder's branch ATTN for one token a row, with a cache of L keys."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B 1 D'],
    first: Int[Array, ' B'],
    position: Int[Array, ' B'],
    length: int,
  ) -> Float[Array, 'B 1 D']:
    """Add the branch to `x`, the tokens at `position` of first..length-1."""
    y = norm(self.config, 'norm')(x)
    place = jnp.arange(len(x))[:, None], position[:, None]
    keys = jnp.arange(length)
    mask = (keys >= first[:, None]) & (keys <= position[:, None])
    config = self.config.decoder_attention()
    return x + cached_attention.CachedAttention(config, name='attention')(
      y,
      position,
      mask[:, None],
      query_length=length,
      key_length=length,
      update=(y, place),
      positions=(position - first)[:, None],
    )


class CrossAttention(nn.Module):
  """The branch CA of the encoder: neighbors read their chunk."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'BC NR E'],
    chunk: Float[Array, 'BC M D'],
    mask: Bool[Array, 'BC 1 M'] | None,
    train: bool = False,
  ) -> Float[Array, 'BC NR E']:
    """Add the branch to `x`, a row of which holds a chunk's N neighbors."""
    c = self.config
    config = c.encoder_attention(cross=True)
    y = attention.RelativeAttention(config, name='attention')(
      norm(c, 'norm')(x), chunk, query_length=c.neighbor_length, mask=mask
    )
    dropout = nn.Dropout(c.encoder_dropout_rate, deterministic=not train)
    return x + dropout(y)


class ReadNeighbors(nn.Module):
  """The branch CCA: tokens read the neighbors of the last complete chunk."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    encoded: Float[Array, 'B C N R E'],
    neighbor_mask: Bool[Array, 'B C N R'],
    token_mask: Bool[Array, 'B C M'] | None,
    train: bool = False,
    last: Int[Array, ' B'] | None = None,
  ) -> Float[Array, 'B L D']:
    """Add the branch to `x`; see cca.ChunkedCrossAttention."""
    c = self.config
    y = cca.ChunkedCrossAttention(c.decoder_attention(cross=True), name='cca')(
      norm(c, 'norm')(x),
      encoded,
      neighbor_mask,
      token_mask,
      c.chunk_length,
      last,
    )
    return x + nn.Dropout(c.dropout_rate, deterministic=not train)(y)


class ReadCachedNeighbors(nn.Module):
  """The branch CCA for one token a row."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B 1 D'],
    position: Int[Array, ' B'],
    encoded: Float[Array, 'A 1 N R E'] | None,
    rows: Int[Array, ' A'] | None,
    neighbor_mask: Bool[Array, 'B N R'],
  ) -> Float[Array, 'B 1 D']:
    """Add the branch to `x`; see cca.CachedCrossAttention."""
    c = self.config
    y = norm(c, 'norm')(x)
    return x + cca.CachedCrossAttention(
      c.decoder_attention(cross=True), name='cca'
    )(y, position, encoded, rows, neighbor_mask, c.chunk_length)
