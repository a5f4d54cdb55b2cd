# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What candidates are worth to a decoder that reads them as a prefix.

REPLUG (Shi et al. 2023, sections 3.2 and 4): the candidate's text goes before the
context, here the chunk that asks, and the loss is that of the chunk which follows.

Dimension key: B batch, L tokens, C chunks, M chunk length, K candidates, A = K + 1
candidates and none, R neighbor length, Q queries of a row.
"""

from collections.abc import Mapping
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retro_jax.nn import losses


def right_aligned(
  tokens: Int[Array, '*b R'], mask: Bool[Array, '*b R']
) -> tuple[Int[Array, '*b R'], Bool[Array, '*b R']]:
  """Move the tokens that count, the first ones of a row, to its end."""
  length = tokens.shape[-1]
  kept = mask.sum(-1, keepdims=True)
  at = jnp.arange(length) - (length - kept)
  return jnp.take_along_axis(tokens, jnp.maximum(at, 0), -1), at >= 0


def gold_log_probs(
  model: nn.Module, params: Any, batch: Mapping[str, jax.Array]
) -> Float[Array, 'B Q A M']:
  """Log-probabilities of the chunk after each query, by each candidate alone.

  Args:
    model: a decoder without retrieval.
    batch: as `candidates.loss`; its targets tell which predictions count.

  Returns:
    Nats of positions that `candidates.following` cuts; the last of A is without a
    prefix.
  """
  m = model.config.chunk_length
  asked = jnp.maximum(batch['asked'], 0)
  start = jnp.minimum(asked * m, batch['tokens'].shape[1] - 2 * m)
  span = start[:, :, None] + jnp.arange(2 * m)  # [B, Q, 2 M]
  rows = jnp.arange(len(asked))[:, None, None]
  tokens, targets = batch['tokens'][rows, span], batch['targets'][rows, span]
  k = batch['neighbors'].shape[2]

  def at_queries(x):
    """[B, Q, K, R] of the chunks that ask, and -1 of K for none."""
    return jnp.take_along_axis(x, asked[:, :, None, None], 1)

  prefixes, there = right_aligned(
    at_queries(batch['neighbors']), at_queries(batch['neighbor_mask'])
  )

  def read(rank):
    at = jnp.minimum(rank, k - 1)
    prefix = jax.lax.dynamic_index_in_dim(prefixes, at, 2, keepdims=False)
    mask = jax.lax.dynamic_index_in_dim(there, at, 2, keepdims=False)
    mask &= rank < k
    length = prefix.shape[-1] + 2 * m

    def flat(before, text):
      return jnp.concatenate([before, text], -1).reshape(-1, length)

    row = {
      'tokens': flat(jnp.where(mask, prefix, 0), tokens),
      'targets': flat(jnp.zeros_like(prefix), targets),
      'segment_ids': flat(mask.astype(jnp.int32), jnp.ones_like(tokens)),
      'loss_mask': flat(jnp.zeros_like(mask), jnp.ones(tokens.shape, bool)),
    }
    nll = losses.batch_nll(model, params, row)
    return -nll[:, -m - 1 : -1].reshape(*asked.shape, m)

  return jnp.moveaxis(jax.lax.map(read, jnp.arange(k + 1)), 0, 2)
