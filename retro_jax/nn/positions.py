# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Positions of decoders that are not the paper's: in documents, and rotary.

RETRO's own attentions go by distances (see attention.RelativeAttention). A public
decoder that is given retrieval keeps what it was trained with: angles of queries
and keys (Su et al. 2021, in the layout of Llama's checkpoints) or a learned table.

Dimension key: B batch, L tokens, H heads, K head width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np


def in_documents(segment_ids: Int[Array, 'B L']) -> Int[Array, 'B L']:
  """Positions from the first token of each document, or run of padding.

  Args:
    segment_ids: [B, L]. The document of each token, 0 for padding; the tokens
      of a document stand together.

  Returns:
    [B, L] int32.
  """
  index = jnp.arange(segment_ids.shape[1], dtype=jnp.int32)
  before = jnp.pad(segment_ids, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
  starts = jnp.where(segment_ids != before, index, 0)
  return index - jax.lax.cummax(starts, axis=1)


def in_rows(
  length: int, segment_ids: Int[Array, 'B L'] | None
) -> Int[Array, '_ L']:
  """Positions in rows of documents, or [1, L] of one document each."""
  if segment_ids is None:
    return jnp.arange(length, dtype=jnp.int32)[None]
  return in_documents(segment_ids)


def rotate(
  x: Float[Array, 'H B L K'], positions: Int[Array, '#B L'], base: float
) -> Float[Array, 'H B L K']:
  """Turn each pair (a, a + K / 2) of a vector by its position.

  The product of a turned query and a turned key depends on their distance alone.

  Args:
    x: [H, B, L, K]. Queries or keys; K is even.
    positions: [B, L] or [1, L].
    base: of the frequencies base ** (-2 a / K).

  Returns:
    [H, B, L, K].
  """
  half = x.shape[-1] // 2
  wide = jnp.promote_types(x.dtype, jnp.float32)
  frequencies = base ** (-np.arange(half, dtype=np.float64) / half)
  angles = positions[..., None].astype(wide) * jnp.asarray(frequencies, wide)
  sines, cosines = jnp.sin(angles), jnp.cos(angles)
  first, second = jnp.split(x.astype(wide), 2, axis=-1)
  turned = (first * cosines - second * sines, second * cosines + first * sines)
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)
