# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments of the language model: their checks, and the chunks that are complete."""

import jax.numpy as jnp


def check(config, tokens, neighbors, neighbor_mask, segment_ids):
  """Raise ValueError for arguments of Retro that do not fit each other."""
  if tokens.ndim != 2:
    raise ValueError(f'tokens {tokens.shape}; expected [batch, length].')
  batch, length = tokens.shape
  most = config.decoder.max_positions
  if config.decoder.positions == 'absolute' and length > most:
    raise ValueError(
      f'{length} tokens in a row; expected at most {most}, the '
      'positions that this decoder knows.'
    )
  chunks = -(-length // config.chunk_length)
  shape = (batch, 0, 0, 0) if neighbors is None else neighbors.shape
  shares = config.joint and shape[0]  # rows that read the same neighbors
  if neighbors is not None and (
    len(shape) != 4
    or (batch % shape[0] if shares else shape[0] != batch)
    or shape[1] > chunks
    or shape[3] != config.neighbor_length
  ):
    raise ValueError(
      f'neighbors {shape}; expected [{batch}, at most {chunks} chunks, any '
      f'number, {config.neighbor_length}] for tokens {tokens.shape}.'
    )
  for name, value, like in (
    ('segment_ids', segment_ids, tokens.shape),
    ('neighbor_mask', neighbor_mask, shape),
  ):
    if value is not None and value.shape != like:
      raise ValueError(f'{name} {value.shape}; expected {like}.')


def complete_chunks(config, tokens, neighbors, mask):
  """Return neighbors and mask of the complete chunks, or None without any."""
  if not config.cca_layers or neighbors is None:
    return None
  complete = tokens.shape[1] // config.chunk_length
  neighbors = neighbors[:, :complete]
  if 0 in neighbors.shape:
    return None
  if mask is None:
    return neighbors, jnp.ones(neighbors.shape, bool)
  return neighbors, mask[:, :complete]
