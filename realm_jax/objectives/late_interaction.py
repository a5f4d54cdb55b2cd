# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Contrast of late interaction: each question's block among all of the batch.

Khattab and Zaharia 2020, section 3.3, with the other questions' blocks as further
negatives (Santhanam et al. 2021, section 3.2). Scores are `colbert.max_sim`.

Dimension key: B questions, P = 1 + N blocks of each, its positive first and then N
hard negatives; Q query length, T block length, K = B P candidates, D vector.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jaxtyping import Int
import numpy as np

from realm_jax.data import examples
from realm_jax.objectives import dpr, in_batch
from retrieval.nn import colbert, means, objectives


def loss(
  model: colbert.Colbert,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  num_chunks: int = 1,
  mask_duplicates: bool = True,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Cross-entropy of each question's block among all blocks of the batch.

  `batch` is of `reader`, perhaps with row_valid [B]; other arguments are as of
  `in_batch`, and the metrics those of `dpr.loss`.
  """

  def encode(rows, key):
    def vectors(ids, mask, key):
      flat = (x.reshape(-1, x.shape[-1]) for x in (ids, mask))
      rngs = None if key is None else {'dropout': key}
      return model.apply({'params': params}, *flat, train=train, rngs=rngs)

    keys = (None, None) if key is None else jax.random.split(key)
    block_ids = rows['block_ids']
    queries = vectors(rows['query_ids'], rows['query_mask'], keys[0])
    blocks = vectors(block_ids, rows['block_mask'], keys[1])
    return queries, blocks.reshape(*block_ids.shape, -1)

  names = ('query_ids', 'query_mask', 'block_ids', 'block_mask')
  queries, blocks = in_batch.map_chunks(
    encode,
    {name: batch[name] for name in names},
    num_chunks=num_chunks,
    key=key if train else None,
  )
  candidates, scored = map(
    in_batch.positives_first, (blocks, batch['block_scored'])
  )
  scores = colbert.max_sim(queries, candidates, scored)
  masks = in_batch.make_masks(batch, blocks.shape[:2], mask_duplicates)
  return objectives.contrastive(scores, masks), dpr.metrics(scores, masks)


def reader(
  rows: colbert.Rows, pairs: dpr.Examples
) -> Callable[[Int[np.ndarray, ' B'], Any], examples.Batch]:
  """Return the function from numbers of examples to a batch of `loss`.

  A block is encoded with its title above it. The batch has query_ids [B, Q]
  and query_mask (what tokens attend to), block_ids [B, P, T] int32, block_mask and block_scored [B, P, T] bool, True
  where there is a token and where it has a vector, block_valid [B, P] bool and
  block_hash [B, P, 2] uint32.
  """

  def read(numbers, _):
    ids, fields = pairs.blocks(numbers)
    flat, passages = ids.reshape(-1).tolist(), pairs.passages
    texts = [
      colbert.titled(title, text) if i >= 0 else ''
      for i, title, text in zip(
        flat, passages.titles(flat), passages.texts(flat), strict=True
      )
    ]
    length = rows.config.passage_length
    tokens, counts = examples.pad(rows.passages(texts), length)
    mask = np.arange(length) < counts[:, None]
    blocks = tokens, mask, mask & rows.has_vector(tokens)
    names = 'block_ids', 'block_mask', 'block_scored'
    queries = rows.queries(pairs.texts(numbers))
    return {
      'query_ids': queries,
      'query_mask': rows.attended(queries),
      **{
        name: x.reshape(*ids.shape, length)
        for name, x in zip(names, blocks, strict=True)
      },
      **fields,
    }

  return read
