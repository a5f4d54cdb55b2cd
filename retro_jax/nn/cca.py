# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Chunked cross-attention: the decoder reads the encoded neighbors.

Borgeaud et al. 2022, section 2.4 and listing 1. Token t (from 0) reads the
neighbors of chunk u = (t + 1) // M - 1, the last chunk that ends at or before
t, as number i = (t + 1) % M of the "attending chunk" that starts at the last
token of chunk u. Tokens 0..M-2 read nothing.

Dimension key: B batch, L tokens, D model width, C complete chunks, M chunk
length, N neighbors, R neighbor length, E encoder width.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from retro_jax.nn import attention


def chunk_to_read(
  position: Int[Array, ' B'], chunk_length: int, num_chunks: int
) -> tuple[Int[Array, ' B'], Bool[Array, ' B']]:
  """The chunk, in 0..C-1, whose neighbors a token reads, and whether there is one."""
  u = (position + 1) // chunk_length - 1
  return jnp.clip(u, 0, num_chunks - 1), (u >= 0) & (u < num_chunks)


def attending_chunks(
  x: Shaped[Array, 'B L *D'], chunk_length: int, num_chunks: int
) -> Shaped[Array, 'B C M *D']:
  """Cut tokens into attending chunks, each one token before the next chunk.

  Returns:
    Zeros where the last attending chunk passes the end; tokens after `num_chunks`,
    which is at most L // M, are left out.
  """
  start = chunk_length - 1
  size = num_chunks * chunk_length
  x = x[:, start : start + size]
  padding = [(0, 0)] * x.ndim
  padding[1] = (0, size - x.shape[1])
  return jnp.pad(x, padding).reshape(
    x.shape[0], num_chunks, chunk_length, *x.shape[2:]
  )


def to_tokens(
  chunks: Float[Array, 'B C M D'], length: int
) -> Float[Array, 'B L D']:
  """Put attending chunks back at their tokens, zeros elsewhere."""
  batch, num_chunks, chunk_length, width = chunks.shape
  start = chunk_length - 1
  x = chunks.reshape(batch, num_chunks * chunk_length, width)
  x = x[:, : length - start]
  return jnp.pad(x, ((0, 0), (start, length - start - x.shape[1]), (0, 0)))


class ChunkedCrossAttention(nn.Module):
  """CA(h, E_u) of every token h with the neighbors of its chunk u (eq. 3)."""

  config: attention.AttentionConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    encoded: Float[Array, 'B C N R E'],
    neighbor_mask: Bool[Array, 'B C N R'],
    token_mask: Bool[Array, 'B C M'] | None,
    last: Int[Array, ' B'] | None = None,
    *,
    chunk_length: int,
  ) -> Float[Array, 'B L D']:
    """Read the neighbors; all of a chunk's share one softmax.

    Args:
      x: the decoder's stream, already normalized.
      encoded: neighbors of the complete chunks.
      neighbor_mask: False where there is no neighbor token.
      token_mask: False for tokens of an attending chunk that may not read (they
        belong to another document); None lets all read.
      last: tokens whose neighbors CachedCrossAttention is to find in the
        collection 'cache', if that may change.
      chunk_length: M.

    Returns:
      Without residual; exactly zero where there is nothing to read.
    """
    batch, num_chunks, num_neighbors, neighbor_length, _ = encoded.shape
    rows = batch * num_chunks
    num_keys = num_neighbors * neighbor_length
    queries = attending_chunks(x, chunk_length, num_chunks)
    cached_rows = None
    if last is not None:
      u, _ = chunk_to_read(last, chunk_length, num_chunks)
      cached_rows = jnp.arange(batch) * num_chunks + u
    out = attention.RelativeAttention(self.config, name='attention')(
      queries.reshape(rows, chunk_length, -1),
      encoded.reshape(rows, num_keys, -1),
      key_length=neighbor_length,
      offset=chunk_length - 1,
      segments=(jnp.ones((1, 1), bool), neighbor_mask.reshape(rows, num_keys)),
      cached_rows=cached_rows,
    )
    out = out.reshape(queries.shape)
    if token_mask is not None:
      out = jnp.where(token_mask[..., None], out, 0)
    return to_tokens(out, x.shape[1])


class CachedCrossAttention(nn.Module):
  """The same for one token a row; the cache holds its chunk's neighbors."""

  config: attention.AttentionConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B 1 D'],
    position: Int[Array, ' B'],
    encoded: Float[Array, 'A 1 N R E'] | None,
    rows: Int[Array, ' A'] | None,
    neighbor_mask: Bool[Array, 'B N R'],
    *,
    chunk_length: int,
  ) -> Float[Array, 'B 1 D']:
    """Read the neighbors.

    Args:
      x: the decoder's stream, already normalized.
      position: of the tokens.
      encoded: neighbors of newly complete chunks; None without any.
      rows: whose chunks those are.
      neighbor_mask: of the neighbors in the cache, after this.
      chunk_length: M.
    """
    update = None
    if encoded is not None:
      update = encoded.reshape(len(encoded), -1, encoded.shape[-1]), (rows,)
    return attention.CachedAttention(self.config, name='attention')(
      x,
      (position + 1) % chunk_length,
      neighbor_mask.reshape(len(x), 1, -1),
      query_length=chunk_length,
      key_length=neighbor_mask.shape[-1],
      update=update,
    )
