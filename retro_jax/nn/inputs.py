# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments of the language model: checks, complete chunks, and a cache of them.

A pass over whole rows fills the collection 'cache' for the next tokens.

Dimension key: B batch, N neighbors, R neighbor length.
"""

import jax.numpy as jnp

from retro_jax.nn import attention, cca


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


def is_kept(module, last) -> bool:
  """Whether the caller wants a cache to go on after positions `last`."""
  return last is not None and attention.is_caching(module)


def put_first(module, tokens, segment_ids, last) -> None:
  """Keep `first` [B]: where the document begins that each row's `last` is of."""
  if not is_kept(module, last):
    return
  if segment_ids is None:
    first = jnp.zeros(len(tokens), jnp.int32)
  else:
    document = jnp.take_along_axis(segment_ids, last[:, None], axis=1)
    first = jnp.argmax(segment_ids == document, axis=1).astype(jnp.int32)
  module.put_variable('cache', 'first', first)


def put_neighbors(module, x, neighbor_mask, segment_ids, last) -> None:
  """Keep what conditions the encoder, and the neighbors that `last` reads."""
  if not is_kept(module, last):
    return
  m, rows = module.config.chunk_length, jnp.arange(len(last))
  u, exists = cca.chunk_to_read(last, m, neighbor_mask.shape[1])
  if segment_ids is not None:
    owner = segment_ids[rows, u * m + m - 1]
    exists &= owner == segment_ids[rows, last]
  mask = neighbor_mask[rows, u] & exists[:, None, None]  # [B, N, R]
  module.put_variable('cache', 'conditioning', x)
  module.put_variable('cache', 'neighbor_mask', mask)
