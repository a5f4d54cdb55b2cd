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
from jaxtyping import Array, Bool, Float

from realm_jax.nn import realm as model_lib
from retrieval import settings
from retrieval.nn import objectives

_READ = ('query_ids', 'query_mask', 'block_ids', 'block_mask', 'block_types')


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
  """Negatives of a batch, and how it is encoded."""

  # parts in which a batch is encoded, so that one part's activations are kept
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
  """Encode a batch in chunks, without keeping their activations.

  Gao et al. 2021 (Scaling Deep Contrastive Learning Batch Size under Memory
  Limited Setup): embed in chunks, keep only the embeddings, and embed each chunk
  again for its gradients. A microbatch would have only its own negatives.

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


def score_batch(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  num_chunks: int,
  mask_duplicates: bool,
) -> tuple[Float[Array, 'B K'], objectives.Masks]:
  """Embed a batch; return scores and masks for `objectives.contrastive`.

  Args:
    model: has `embed_queries`, `embed_blocks` and `config.score_scale`.
    batch: query_ids, query_mask [B, Q], block_ids, block_mask, block_types [B,
      T] or [B, P, T]; optional row_valid [B], block_valid [B, P], False where a
      query has fewer hard negatives, and block_hash, one integer or two for
      each block, equal for equal blocks.
    num_chunks: chunks in which to embed, so that only one chunk's activations
      are kept (`map_chunks`).
    mask_duplicates: removes copies of a row's positive from its negatives, by
      block_hash. The released code of ICT and DPR does not.

  Raises:
    ValueError: for mask_duplicates without block_hash.
  """
  queries, blocks = map_chunks(
    functools.partial(model_lib.embed_pairs, model, params, train),
    {name: batch[name] for name in _READ},
    num_chunks=num_chunks,
    key=key if train else None,
  )
  blocks = blocks.reshape(len(queries), -1, blocks.shape[-1])
  valid, negatives = batch.get('block_valid'), None
  if blocks.shape[1] > 1:
    negatives = blocks[:, 1:]
    valid = None if valid is None else valid[:, 1:]
  scores, masks = scores_and_masks(
    queries,
    blocks[:, 0],
    negatives,
    row_valid=batch.get('row_valid'),
    negative_valid=valid,
  )
  scores *= model.config.score_scale
  if mask_duplicates:
    masks = without_copies(masks, batch)
  return scores, masks


def scores_and_masks(
  queries: Float[Array, 'B D'],
  blocks: Float[Array, 'B D'],
  negatives: Float[Array, 'B N D'] | None = None,
  *,
  row_valid: Bool[Array, ' B'] | None = None,
  negative_valid: Bool[Array, 'B N'] | None = None,
) -> tuple[Float[Array, 'B K'], objectives.Masks]:
  """Inner products in float32 of each query with all blocks, and their masks.

  Queries and blocks are [B, D], negatives [B, N, D] are negatives of all rows;
  row_valid [B] and negative_valid [B, N] are False at padding.
  """
  all_blocks = blocks
  if negatives is not None:
    rows = negatives.reshape(-1, negatives.shape[-1])
    all_blocks = jnp.concatenate([blocks, rows])
  scores = jnp.einsum(
    'qd,kd->qk',
    objectives.float32(queries),
    objectives.float32(all_blocks),
    precision='highest',
  )
  shape = len(blocks), 0 if negatives is None else negatives.shape[1]
  return scores, make_masks(shape, row_valid, negative_valid)


def make_masks(
  shape: tuple[int, int],
  row_valid: Bool[Array, ' B'] | None = None,
  negative_valid: Bool[Array, 'B N'] | None = None,
) -> objectives.Masks:
  """Masks [B, K] of `scores_and_masks`; `shape` is (B, N)."""
  batch, num_negatives = shape
  valid = jnp.ones(batch, bool) if row_valid is None else row_valid
  real = jnp.broadcast_to(valid[:, None], shape)
  real = real if negative_valid is None else real & negative_valid
  candidates = jnp.concatenate([valid, real.reshape(-1)])
  own = jnp.eye(batch, batch * (1 + num_negatives), dtype=bool)
  candidates = valid[:, None] & candidates[None, :]
  return objectives.Masks(None, candidates, own & candidates)


def without_copies(
  masks: objectives.Masks, batch: Mapping[str, jax.Array]
) -> objectives.Masks:
  """Remove copies of a row's positive from its negatives, by block_hash.

  Raises:
    ValueError: without block_hash.
  """
  if 'block_hash' not in batch:
    raise ValueError("mask_duplicates=True needs batch['block_hash'].")
  rows, columns = masks.candidates.shape
  hashes = batch['block_hash'].reshape(rows, columns // rows, -1)
  return masks.replace(candidates=masks.candidates & ~_copies(hashes))


def _copies(hashes: jax.Array) -> jax.Array:
  """[B, K] True where a candidate is another block equal to the positive."""
  negatives = hashes[:, 1:].reshape(-1, hashes.shape[-1])
  found = jnp.concatenate([hashes[:, 0], negatives])
  same = (hashes[:, :1] == found[None]).all(axis=-1)
  return same & ~jnp.eye(*same.shape, dtype=bool)
