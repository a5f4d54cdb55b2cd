# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The collection 'cache': a pass over whole rows fills it for the next tokens.

Dimension key: B batch, N neighbors, R neighbor length.
"""

import jax.numpy as jnp

from retro_jax.nn import attention, cca


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
