# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The inverse cloze task: find the block of a sentence.

Lee et al. 2019 (ORQA), section 4; the warm start of REALM's retriever. Nine
times in ten the sentence is removed from its block, which trains the matching
of meaning; otherwise it stays, which trains the matching of words.

Dimension key: B batch, Q query length, T block length, N tokens read.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int
import numpy as np

from realm_jax.data import examples
from realm_jax.objectives import in_batch
from retrieval import settings
from retrieval.nn import means, objectives
from retrieval.text import blocks as blocks_lib

# how often the sentence leaves its block (Lee et al. 2019, section 4)
MASK_RATE = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class IctConfig(in_batch.BatchConfig):
  """The inverse cloze task."""

  query_length: examples.QueryLength = 64

  __post_init__ = settings.check


def loss(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  mask_duplicates: bool = False,
  **settings: Any,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Cross-entropy of each sentence's block among all blocks of the global batch.

  Arguments and errors are those of `in_batch.score_batch`.

  Returns:
    The mean over valid rows in nats, and metrics: accuracy; accuracy_masked and
    accuracy_unmasked over the rows with and without a removed sentence;
    masked_fraction.
  """
  scores, masks = in_batch.score_batch(
    model,
    params,
    batch,
    key,
    train,
    mask_duplicates=mask_duplicates,
    **settings,
  )
  removed = batch['sentence_removed']
  best = jnp.where(masks.candidates, scores, -jnp.inf).argmax(axis=-1)
  correct = best == jnp.arange(len(scores))
  valid = masks.positives.any(axis=-1)
  return objectives.contrastive(scores, masks), {
    'accuracy': means.of(correct, valid),
    'accuracy_masked': means.of(correct, valid & removed),
    'accuracy_unmasked': means.of(correct, valid & ~removed),
    'masked_fraction': means.of(removed, valid),
  }


def choose_sentences(
  blocks: blocks_lib.BlockStore,
  ids: Int[np.ndarray, ' B'],
  rng: np.random.Generator,
  mask_rate: float,
) -> tuple[
  list[np.ndarray],
  list[np.ndarray],
  Bool[np.ndarray, ' B'],
  Int[np.ndarray, ' B'],
]:
  """Choose a sentence of each block, and whether it leaves the block.

  Returns:
    Tokens of each sentence; of each block's body, perhaps without it; whether it is
    removed; the number of the block's sentences.
  """
  ranges = [blocks.sentences(i) for i in ids.tolist()]
  counts = np.asarray([len(x) for x in ranges])
  chosen = rng.integers(counts)
  removed = rng.random(len(counts)) < mask_rate
  first = np.asarray([x.start for x in ranges])
  spans = blocks.token_spans[ids]
  places = blocks.sentence_tokens[first + chosen] - spans[:, :1]
  lengths = spans[:, 1] - spans[:, 0]
  tokens, _ = blocks.gather(ids, int(lengths.max()))
  bodies = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
  cuts = [slice(*place) for place in places]
  sentences = [x[cut] for x, cut in zip(bodies, cuts, strict=True)]
  rests = [
    np.delete(body, cut) if leaves else body
    for body, cut, leaves in zip(bodies, cuts, removed, strict=True)
  ]
  return sentences, rests, removed, counts


def read_rows(
  layout: examples.Layout,
  blocks: blocks_lib.BlockStore,
  ids: Int[np.ndarray, ' B'],
  rng: np.random.Generator,
  mask_rate: float = MASK_RATE,
) -> examples.Batch:
  """Make one example of each block; released lengths are Q 64, T 288.

  Returns:
    query_ids [B, Q] int32, query_mask [B, Q] bool, block_ids, block_types [B, T]
    int32, block_mask [B, T] bool, block_hash [B, 2] uint32, sentence_removed [B]
    bool, row_valid [B] bool: False for a block whose only sentence was removed.
  """
  sentences, rests, removed, counts = choose_sentences(
    blocks, ids, rng, mask_rate
  )
  room = layout.block_length - 3
  block = examples.join_titled(
    layout, blocks.gather_titles(ids, room), examples.pad(rests, room)
  )
  sentences = examples.pad(sentences, layout.query_tokens)
  return {
    **examples.queries(layout, *sentences),
    **examples.name_rows('block', block, ids.shape),
    'block_hash': examples.hash_pairs(blocks.hashes(ids)),
    'sentence_removed': removed,
    'row_valid': ~removed | (counts > 1),
  }
