# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The residual branches of algorithm 1: ATTN, FFW, CA and CCA.

Each normalizes its input, computes, drops out and adds (pre-norm, as GPT-2).

Dimension key: B batch, L tokens, D model width, C chunks, M chunk length, N
neighbors, R neighbor length, E encoder width.
"""

import functools
from typing import Any

from flax import linen as nn
import jax
from jax import checkpoint_policies as policies
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval.kernels import fused_attention
from retrieval.nn import partitioning
from retro_jax.nn import attention, cca, primitives
from retro_jax.nn.config import ACTIVATIONS, Attentions, RetroConfig

# RetroConfig.remat -> what the backward pass finds in memory; 'none' has no policy.
POLICIES = {
  'full': policies.nothing_saveable,
  'attention': policies.save_only_these_names(fused_attention.KEPT),
}


def recomputed(
  module: type[nn.Module], config: RetroConfig, train_index: int
) -> type[nn.Module]:
  """Return a branch whose backward pass recomputes what `config.remat` says."""
  if config.remat == 'none':
    return module
  policy = POLICIES[config.remat]
  return nn.remat(module, static_argnums=(train_index,), policy=policy)


def norm(config: RetroConfig, name: str) -> primitives.Norm:
  """A norm as the config wants it."""
  centered = config.decoder.norm == 'layer'
  return primitives.Norm(
    config.norm_epsilon, config.dtype, config.param_dtype, centered, name=name
  )


def embed(
  table: Float[Array, 'V D'], ids: Int[Array, '...'], dtype: Any
) -> Float[Array, '... D']:
  """Look up ids in a table.

  The cast comes after the lookup, so that the table's gradient is a sum in the
  dtype of the table: in bfloat16 a sum of equal terms stops growing at 256 of them.
  """
  # Whole rows on every device: a lookup in split ones would be replicated.
  table = partitioning.constrain(table, 'vocab', None)
  rows = jnp.take(table, ids, axis=0, mode='clip').astype(dtype)
  return partitioning.constrain(rows, 'batch', *[None] * ids.ndim)


def dropped(config: RetroConfig, x: jax.Array, train: bool) -> jax.Array:
  """Drop out in training; the encoder calls it with `train` False."""
  return nn.Dropout(config.dropout_rate, deterministic=not train)(x)


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
  in_encoder: bool = False

  @nn.compact
  def __call__(
    self, x: Float[Array, '*B D'], train: bool = False
  ) -> Float[Array, '*B D']:
    """Add the branch to `x`."""
    c = self.config
    width = x.shape[-1]
    out_scale = c.output_scale(in_encoder=self.in_encoder)
    d_ff = c.encoder_d_ff if self.in_encoder else c.d_ff
    h = norm(c, 'norm')(x)
    self.sow('intermediates', 'normed', h)  # the last layer's: kNN-LM's keys
    linear = functools.partial(primitives.project, self, bias=c.ff_biases)
    names = ('w1', 'w3') if c.decoder.gated else ('w1',)
    y, *factors = linear(names, h, d_ff, ('embed', 'mlp'), c.init_scale)
    y = ACTIVATIONS[c.activation](y)
    for factor in factors:
      y = y * factor
    (y,) = linear(['w2'], y, width, ('mlp', 'embed'), out_scale)
    return x + dropped(c, y, train)


class Attention(nn.Module):
  """The branch ATTN, the decoder's (causal) and the encoder's, or the branch CA."""

  config: RetroConfig
  kind: Attentions = 'decoder'

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    keys: Float[Array, 'B S E'] | None,
    segments: tuple[jax.Array, jax.Array] | None,
    train: bool = False,
    positions: Int[Array, '#B L'] | None = None,
  ) -> Float[Array, 'B L D']:
    """Add the branch to `x`; segments and positions are as of RelativeAttention.

    With `keys`, the chunks that neighbors read, a row of `x` holds all neighbors of
    a chunk; None is `x` itself.
    """
    c, causal = self.config, self.kind == 'decoder'
    y = norm(c, 'norm')(x)
    config = c.attention_of(self.kind)
    y = attention.RelativeAttention(config, name='attention')(
      y,
      y if keys is None else keys,
      query_length=None if keys is None else c.neighbor_length,
      causal=causal,
      segments=segments,
      cached_rows=slice(None) if causal else None,
      positions=positions,
    )
    return x + dropped(c, y, train)


class CachedSelfAttention(nn.Module):
  """The decoder's branch ATTN for the next token, with a cache of L keys."""

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
    keys, place, first = jnp.arange(length), position[:, None], first[:, None]
    mask = (keys >= first) & (keys <= place)
    config = self.config.attention_of('decoder')
    return x + attention.CachedAttention(config, name='attention')(
      y,
      position,
      mask[:, None],
      query_length=length,
      key_length=length,
      update=(y, (jnp.arange(len(x))[:, None], place)),
      positions=place - first,
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
    attend = self.kind(c.attention_of('cca'), name='cca')
    y = attend(norm(c, 'norm')(x), *read, chunk_length=c.chunk_length)
    return x + dropped(c, y, train)


class Encoder(nn.Module):
  """ENCODER of algorithm 1: all neighbors of all chunks as one batch."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B C N R E'],
    neighbor_mask: Bool[Array, 'B C N R'],
    chunks: Float[Array, 'B C M D'],
    chunk_mask: Bool[Array, 'B C M'] | None,
  ) -> Float[Array, 'B C N R E']:
    """Encode neighbors, conditioned on the chunks that retrieved them.

    Without dropout. Of its layers the first alone reads the chunks, as in the paper.

    Args:
      x: embedded neighbors.
      neighbor_mask: False where there is no token.
      chunks: H_u, the decoder's activations at layer min(P).
      chunk_mask: False hides a token of the chunk; None hides none.
    """
    c = self.config
    shape = x.shape
    length, width = shape[-2:]
    rows = shape[0] * shape[1]
    everywhere = jnp.ones((1, 1), bool)
    there = everywhere, neighbor_mask.reshape(-1, length)
    attend = recomputed(Attention, c, 4)
    feed_forward = recomputed(FeedForward, c, 2)
    if c.query_conditioning:
      chunks = norm(c, 'conditioning_norm')(chunks)
    chunks = chunks.reshape(rows, *chunks.shape[2:])
    chunk_there = None
    if chunk_mask is not None:
      chunk_there = everywhere, chunk_mask.reshape(rows, -1)
    x = x.reshape(-1, length, width)
    for p in range(1, c.encoder_num_layers + 1):
      x = attend(c, 'encoder', name=f'layer_{p}_attn')(x, None, there, False)
      if c.query_conditioning and p == 1:
        x = attend(c, 'ca', name=f'layer_{p}_ca')(
          x.reshape(rows, -1, width), chunks, chunk_there, False
        ).reshape(-1, length, width)
      x = feed_forward(c, in_encoder=True, name=f'layer_{p}_ffw')(x, False)
    return norm(c, 'final_norm')(x).reshape(shape)
