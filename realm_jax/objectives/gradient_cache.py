# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Contrastive learning with batches whose activations exceed the memory.

Gao et al. 2021 (Scaling Deep Contrastive Learning Batch Size under Memory
Limited Setup): embed in chunks, keep only the embeddings, and embed each chunk
again for its gradients. A microbatch would have only its own negatives.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def map_chunks(
  encode: Callable[[Any, jax.Array | None], Any],
  batch: Any,
  *,
  num_chunks: int,
  key: jax.Array | None = None,
) -> Any:
  """Encode a batch in chunks, without keeping their activations.

  Except for dropout, value and gradients are those of `encode(batch, key)`; the
  time is that of one more forward pass. Each chunk takes rows from every
  device's share of the batch, so nothing moves between devices. Gradients reach
  all values that `encode` closes over, such as parameters.

  Args:
    encode: (batch, key) -> tree of arrays [rows, ...]; rows do not interact.
    num_chunks: a divisor of the rows; 1 is a plain call, which keeps
      activations.
    key: each chunk folds in its number and draws the same values again.

  Raises:
    ValueError: if the chunks do not divide the rows.
  """
  rows = jax.tree.leaves(batch)[0].shape[0]
  if num_chunks < 1 or rows % num_chunks:
    raise ValueError(
      f'{num_chunks} chunks do not divide a batch of {rows} rows.'
    )
  if num_chunks == 1:
    return encode(batch, key)

  def one_chunk(inputs):
    index, chunk = inputs
    chunk_key = None if key is None else jax.random.fold_in(key, index)
    return encode(chunk, chunk_key)

  chunks = jax.tree.map(
    lambda x: x.reshape(-1, num_chunks, *x.shape[1:]).swapaxes(0, 1), batch
  )
  # The backward pass runs in a loop of its own, which shares nothing with this
  # one: there is no need to keep the compiler from it.
  encoded = jax.lax.map(
    jax.checkpoint(one_chunk, prevent_cse=False),
    (jnp.arange(num_chunks), chunks),
  )
  return jax.tree.map(
    lambda x: x.swapaxes(0, 1).reshape(rows, *x.shape[2:]), encoded
  )
