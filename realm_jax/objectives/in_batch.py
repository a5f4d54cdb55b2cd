# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of each query with the blocks of all queries of its batch.

Karpukhin et al. 2020, section 3.2. The batch is the global one: on many devices
the blocks of all are gathered.

Dimension key: B queries, P = 1 + N blocks of each, its positive first and then
N hard negatives; K = B P candidates, all positives before row 0's negatives and
so on; D embedding.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Annotated, Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from realm_jax.nn import batches
from retrieval import settings
from retrieval.nn import objectives

_READ = ('query_ids', 'query_mask', 'block_ids', 'block_mask', 'block_types')


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
  """Negatives of a batch, and how it is encoded."""

  # parts in which a batch is encoded; activations of one part need memory at a time
  gradient_cache_parts: Annotated[int, settings.Range(1, 2**16)] = 1
  # whether copies of a row's block are left out of its negatives; not as released
  mask_duplicates: bool = True


def map_chunks(
  encode: Callable[[Any, jax.Array | None], Any],
  batch: Any,
  *,
  num_chunks: int,
  key: jax.Array | None = None,
) -> Any:
  """Encode a batch in chunks; activations of one chunk need memory at a time.

  Gao et al. 2021 (arXiv 2101.06983): embed in chunks, store only the embeddings,
  and embed each chunk again for its gradients. A microbatch would lack the
  negatives of the others.

  Except for dropout, value and gradients are those of `encode(batch, key)`; the
  time is that of one more forward pass. Each chunk takes rows from every
  device's share of the batch, so nothing moves between devices.

  Args:
    encode: (batch, key) -> tree of arrays [rows, ...]; rows do not interact.
    num_chunks: a divisor of the rows; 1 is a plain call.
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


def embed_pairs(
  model: nn.Module,
  params: Any,
  train: bool,
  batch: Mapping[str, jax.Array],
  key: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
  """Embed queries [B, d] and blocks [B, ..., d], each with dropout of its own.

  `model` has `embed_queries` and `embed_blocks`, as `Realm`. The batch has
  query_ids, query_mask [B, Q]; block_ids, block_mask, block_types [B, ..., T].
  """
  keys = [jax.random.fold_in(key, i) if train else None for i in range(2)]
  asked = [batch['query_ids'], batch['query_mask']]
  rows = batches.fold_rows(batch, 'block')
  queries, blocks = (
    batches.apply(model, params, *inputs, train=train, key=key, method=method)
    for inputs, key, method in zip(
      (asked, rows), keys, ('embed_queries', 'embed_blocks'), strict=True
    )
  )
  return queries, blocks.reshape(*batch['block_ids'].shape[:-1], -1)


def score_batch(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  num_chunks: int = 1,
  mask_duplicates: bool = True,
) -> tuple[Float[Array, 'B K'], objectives.Masks]:
  """Embed a batch; return scores and masks for `objectives.contrastive`.

  Args:
    model: has `embed_queries` and `embed_blocks`.
    batch: query_ids, query_mask [B, Q], block_ids, block_mask, block_types [B,
      T] or [B, P, T], and optional arrays of `make_masks`.
    num_chunks: chunks in which to embed (`map_chunks`).
    mask_duplicates: as of `make_masks`.

  Raises:
    ValueError: for a batch of one block; for mask_duplicates without block_hash.
  """
  queries, blocks = map_chunks(
    functools.partial(embed_pairs, model, params, train),
    {name: batch[name] for name in _READ},
    num_chunks=num_chunks,
    key=key if train else None,
  )
  blocks = blocks.reshape(len(queries), -1, blocks.shape[-1])
  scores = jnp.einsum(
    'qd,kd->qk',
    objectives.float32(queries),
    objectives.float32(positives_first(blocks)),
    precision='highest',
  )
  return scores, make_masks(batch, blocks.shape[:2], mask_duplicates)


def positives_first(blocks: jax.Array) -> jax.Array:
  """Return [K, ...] of [B, P, ...]: all positives before row 0's negatives."""
  negatives = blocks[:, 1:].reshape(-1, *blocks.shape[2:])
  return jnp.concatenate([blocks[:, 0], negatives])


def make_masks(
  batch: Mapping[str, jax.Array],
  shape: tuple[int, int],
  mask_duplicates: bool = False,
) -> objectives.Masks:
  """Masks [B, K] of the candidates of a batch; `shape` is (B, P).

  Args:
    batch: optional row_valid [B], False at padding, and block_valid [B, P],
      False where a query has fewer hard negatives.
    mask_duplicates: removes copies of a row's positive from its negatives, by
      block_hash [B, P, n], one integer or two for each block. The released code
      of ICT and DPR does not.
  """
  rows = batch.get('row_valid', jnp.ones(shape[0], bool))
  valid = jnp.broadcast_to(rows[:, None], shape)
  valid &= batch.get('block_valid', valid).reshape(shape)
  candidates = rows[:, None] & positives_first(valid)[None]
  positives = jnp.eye(*candidates.shape, dtype=bool)
  if mask_duplicates:
    if 'block_hash' not in batch:
      raise ValueError("mask_duplicates=True needs batch['block_hash'].")
    hashes = batch['block_hash'].reshape(*shape, -1)
    same = (hashes[:, :1] == positives_first(hashes)[None]).all(axis=-1)
    candidates &= positives | ~same
  return objectives.Masks(None, candidates, positives & candidates)
