# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks of the shapes that Retro is called with."""

from retro_jax.nn.config import RetroConfig


def check_shapes(
  config: RetroConfig, tokens, neighbors, neighbor_mask, segment_ids
) -> None:
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
  if segment_ids is not None and segment_ids.shape != tokens.shape:
    raise ValueError(
      f'segment_ids {segment_ids.shape}; expected {tokens.shape} like tokens.'
    )
  if neighbors is None:
    if neighbor_mask is not None:
      raise ValueError('neighbor_mask is given, but no neighbors.')
    return
  chunks = -(-length // config.chunk_length)
  shape = neighbors.shape
  if (
    len(shape) != 4
    or shape[0] != batch
    or shape[1] > chunks
    or shape[3] != config.neighbor_length
  ):
    raise ValueError(
      f'neighbors {shape}; expected [{batch}, at most {chunks} chunks, any '
      f'number, {config.neighbor_length}] for tokens {tokens.shape}.'
    )
  if neighbor_mask is not None and neighbor_mask.shape != shape:
    raise ValueError(
      f'neighbor_mask {neighbor_mask.shape}; expected {shape} like neighbors.'
    )
