# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Contrast of late interaction: each question's block among those of the batch.

Khattab and Zaharia 2020, section 3.3, with the other questions' blocks as further
negatives (Santhanam et al. 2021, section 3.2). Scores are `colbert.max_sim`.

Dimension key: B questions, P = 1 + N blocks of each, its positive first and then N
hard negatives; Q query length, T block length, K = B P candidates, D vector.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from realm_jax.data import examples
from realm_jax.objectives import dpr, in_batch
from retrieval.nn import colbert, objectives


def loss(
  model: colbert.Colbert,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  num_chunks: int = 1,
  mask_duplicates: bool = True,
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """Cross-entropy of each question's block among all blocks of the batch.

  Args:
    batch: of `read_rows`, perhaps with row_valid [B].
    num_chunks: parts in which the batch is encoded, as of `in_batch.map_chunks`.
    mask_duplicates: removes copies of a row's block from its negatives.

  Returns:
    As of `dpr.loss`.
  """

  def encode(rows, key):
    def vectors(ids, mask, key):
      flat = (x.reshape(-1, x.shape[-1]) for x in (ids, mask))
      rngs = None if key is None else {'dropout': key}
      return model.apply({'params': params}, *flat, train=train, rngs=rngs)

    keys = (None, None) if key is None else jax.random.split(key)
    query_ids, block_ids = rows['query_ids'], rows['block_ids']
    queries = vectors(query_ids, jnp.ones_like(query_ids, bool), keys[0])
    blocks = vectors(block_ids, rows['block_mask'], keys[1])
    return queries, blocks.reshape(*block_ids.shape, -1)

  names = ('query_ids', 'block_ids', 'block_mask')
  queries, blocks = in_batch.map_chunks(
    encode,
    {name: batch[name] for name in names},
    num_chunks=num_chunks,
    key=key if train else None,
  )
  scores = colbert.max_sim(
    queries, positives_first(blocks), positives_first(batch['block_scored'])
  )
  masks = in_batch.make_masks(
    (len(queries), blocks.shape[1] - 1),
    batch.get('row_valid'),
    batch['block_valid'][:, 1:],
  )
  if mask_duplicates:
    masks = in_batch.without_copies(masks, batch)
  return objectives.contrastive(scores, None, masks), dpr.metrics(scores, masks)


def positives_first(blocks: Array) -> Array:
  """Return [K, ...] of [B, P, ...]: all positives before row 0's negatives."""
  negatives = blocks[:, 1:].reshape(-1, *blocks.shape[2:])
  return jnp.concatenate([blocks[:, 0], negatives])


def reader(
  rows: colbert.Rows, found: dpr.Examples
) -> Callable[[Int[np.ndarray, ' B'], Any], examples.Batch]:
  """Return the function from numbers of examples to a batch of `loss`.

  A block is encoded with its title above it. The batch has query_ids [B, Q], block_ids [B, P, T] int32, block_mask, block_scored
  [B, P, T] bool, True where there is a token and where it has a vector, block_valid
  [B, P] bool, and block_hash [B, P, 2] uint32.
  """

  def read(numbers, _):
    ids = np.concatenate(
      [found.positives[numbers, None], found.negatives[numbers]], axis=1
    )
    flat = ids.reshape(-1)
    title_and_text = found.passages.title_and_text
    passages = rows.passages(
      [
        colbert.titled(*title_and_text(i)) if i >= 0 else ''
        for i in flat.tolist()
      ]
    )
    shape = len(flat), rows.config.passage_length
    tokens, mask = np.zeros(shape, np.int32), np.zeros(shape, bool)
    for i, row in enumerate(passages):
      tokens[i, : len(row)], mask[i, : len(row)] = row, True
    scored = mask & rows.has_vector(tokens)
    hashes = found.passages.hashes(flat).reshape(ids.shape)
    return {
      'query_ids': rows.queries(
        [found.questions[i].question for i in numbers.tolist()]
      ),
      **{
        name: x.reshape(*ids.shape, -1)
        for name, x in (
          ('block_ids', tokens),
          ('block_mask', mask),
          ('block_scored', scored),
        )
      },
      'block_valid': ids >= 0,
      'block_hash': examples.hash_pairs(hashes),
    }

  return read
