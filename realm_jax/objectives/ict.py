# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The inverse cloze task: find the block of a sentence.

Lee et al. 2019 (ORQA), section 4; the warm start of REALM's retriever. Nine
times in ten the sentence is removed from its block, which trains the matching
of meaning; otherwise it stays, which trains the matching of words.

  query   [CLS] sentence [SEP]
  block   [CLS] title [SEP] body [SEP]   types 0 to the first [SEP], then 1

Dimension key: B batch, Q query length, T block length, N tokens read.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from realm_jax.data import examples
from realm_jax.objectives import in_batch
from retrieval import settings
from retrieval.nn import objectives
from retrieval.text import blocks as blocks_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class IctConfig(in_batch.BatchConfig):
  """The inverse cloze task."""

  # how often the sentence leaves its block (Lee et al. 2019, section 4)
  mask_rate: settings.Share = 0.9
  query_length: examples.QueryLength = 64

  __post_init__ = settings.check


def loss(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  num_chunks: int = 1,
  mask_duplicates: bool = False,
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """Cross-entropy of each sentence's own block among those of the global batch.

  Arguments are those of `in_batch.score_batch`. The released code has
  mask_duplicates=False: two sentences of one block are false negatives.

  Returns:
    The mean over valid rows in nats, and metrics: accuracy; accuracy_masked and
    accuracy_unmasked over the rows whose sentence was removed and those whose
    sentence was kept, 0 without such a row; masked_fraction; weight (rows).

  Raises:
    ValueError: for a batch of 1, and for mask_duplicates without block_hash.
  """
  scores, masks = in_batch.score_batch(
    model,
    params,
    batch,
    key,
    train,
    num_chunks=num_chunks,
    mask_duplicates=mask_duplicates,
  )
  value = objectives.contrastive(scores, None, masks)
  return value, _metrics(scores, masks, batch['sentence_removed'])


def _metrics(
  scores: jax.Array, masks: objectives.Masks, removed: jax.Array
) -> dict[str, jax.Array]:
  best = jnp.where(masks.candidates, scores, -jnp.inf).argmax(axis=-1)
  correct = best == jnp.arange(len(scores))
  valid = masks.positives.any(axis=-1)
  return {
    'accuracy': objectives.masked_mean(correct, valid),
    'accuracy_masked': objectives.masked_mean(correct, valid & removed),
    'accuracy_unmasked': objectives.masked_mean(correct, valid & ~removed),
    'masked_fraction': objectives.masked_mean(removed, valid),
    'weight': valid.sum(dtype=jnp.float32),
  }


def choose(
  num_sentences: Int[np.ndarray, ' B'],
  rng: np.random.Generator,
  mask_rate: float = IctConfig.mask_rate,
) -> tuple[Int[np.ndarray, ' B'], Bool[np.ndarray, ' B']]:
  """Choose a sentence of each block ([B] number) and whether to remove it."""
  sentences = rng.integers(num_sentences)
  return sentences, rng.random(len(num_sentences)) < mask_rate


def make_rows(
  layout: examples.Layout,
  titles: tuple[Int[np.ndarray, 'B _'], Int[np.ndarray, ' B']],
  bodies: tuple[Int[np.ndarray, 'B N'], Int[np.ndarray, ' B']],
  sentences: Int[np.ndarray, 'B 2'],
  removed: Bool[np.ndarray, ' B'],
  num_sentences: Int[np.ndarray, ' B'],
) -> examples.Batch:
  """Make rows of sentences and their blocks.

  A title that fits is kept whole; the body, without a removed sentence, is cut
  to the remaining room.

  Args:
    layout: lengths (released: Q 64, T 288) and specials.
    titles: [B, _] tokens of the titles, and [B] their counts.
    bodies: [B, N] all tokens of the blocks, and [B] their counts.
    sentences: [B, 2] first and past-last token of the sentence in its body.

  Returns:
    query_ids [B, Q] int32, query_mask [B, Q] bool, block_ids [B, T] int32,
    block_mask [B, T] bool, block_types [B, T] int32, sentence_removed [B] bool,
    row_valid [B] bool: False for a block whose only sentence was removed.
  """
  query = examples.cut(bodies[0], sentences, layout.query_tokens)
  room = layout.block_length - 3
  title_counts = np.minimum(titles[1], room)
  body, body_counts = examples.cut_out(bodies, sentences, removed, room)
  body_counts = np.minimum(body_counts, room - title_counts)
  block = examples.join(
    layout,
    layout.block_length,
    (titles[0], title_counts),
    (body, body_counts),
  )
  return {
    **examples.queries(layout, *query),
    **examples.name_rows('block', block, removed.shape),
    'sentence_removed': removed,
    'row_valid': ~removed | (num_sentences > 1),
  }


def choose_sentences(
  blocks: blocks_lib.BlockStore,
  ids: Int[np.ndarray, ' B'],
  rng: np.random.Generator,
  mask_rate: float,
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
  """Make bodies, sentences, removed and num_sentences for `make_rows`."""
  ranges = [blocks.sentences(i) for i in ids.tolist()]
  counts = np.asarray([len(found) for found in ranges])
  chosen, removed = choose(counts, rng, mask_rate)
  first = np.asarray([found.start for found in ranges])
  spans = blocks.token_spans(ids)
  longest = int((spans[:, 1] - spans[:, 0]).max())
  sentences = blocks.sentence_tokens(first + chosen) - spans[:, :1]
  return blocks.gather(ids, longest), sentences, removed, counts


def read_rows(
  layout: examples.Layout,
  blocks: blocks_lib.BlockStore,
  ids: Int[np.ndarray, ' B'],
  rng: np.random.Generator,
  mask_rate: float = IctConfig.mask_rate,
) -> examples.Batch:
  """Make one example of each block: `make_rows`' rows and block_hash [B, 2]."""
  chosen = choose_sentences(blocks, ids, rng, mask_rate)
  rows = make_rows(
    layout, blocks.gather_titles(ids, layout.block_length - 3), *chosen
  )
  return rows | {'block_hash': examples.hash_pairs(blocks.hashes(ids))}
