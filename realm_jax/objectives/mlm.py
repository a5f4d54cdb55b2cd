# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Masked language modelling of a sentence joined with its block.

REALM's encoder starts from BERT (Guu et al. 2020, section 3.4), which can
predict a masked word and look for it in the text beside it. An encoder without
these abilities, such as all-MiniLM-L6-v2, learns them here. The sentence is
removed from the block or stays there.

Dimension key: B batch, J joint length, M masked positions, V vocabulary.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int
import numpy as np

from realm_jax.data import examples, sources
from realm_jax.nn import batches, realm as model_lib
from realm_jax.objectives import ict
from retrieval.nn import means
from retrieval.text import blocks as blocks_lib

MASK_RATE = 0.3  # of a sentence's tokens
REMOVAL_RATE = 0.3  # how often the sentence leaves its block
RARITY = 0.5  # tokens are chosen by their frequency to minus this; 0 in BERT
_READ = 1 << 22  # tokens read at once


def weigh_tokens(
  blocks: blocks_lib.BlockStore, vocab_size: int
) -> Float[np.ndarray, ' V']:
  """Weights [V] by which tokens are masked: frequency to the power of -`RARITY`.

  Zhang et al. 2023 (Weighted Sampling for Masked Language Modeling, its alpha).
  """
  counts = np.zeros(vocab_size, np.int64)
  tokens = blocks.tokens.tokens
  for low in range(0, len(tokens), _READ):
    counts += np.bincount(tokens[low : low + _READ], minlength=vocab_size)
  return np.maximum(counts, 1.0) ** -RARITY


def read_rows(
  layout: examples.Layout,
  blocks: blocks_lib.BlockStore,
  ids: Int[np.ndarray, ' B'],
  rng: np.random.Generator,
  token_weights: Float[np.ndarray, ' V'],
  *,
  mask_rate: float = MASK_RATE,
  removal_rate: float = REMOVAL_RATE,
) -> examples.Batch:
  """Make one example of each block: a batch of `realm.Realm.token_logits`.

  Args:
    token_weights: [V] weights of `weigh_tokens`.
    mask_rate: share of a sentence's tokens that become [MASK].
    removal_rate: probability that a sentence is removed from its block.

  Returns:
    joint_ids, joint_mask, joint_types [B, 1, J], mlm_positions, mlm_targets,
    mlm_mask [B, M], and sentence_removed [B] bool.
  """
  sentences, rests, removed, _ = ict.choose_sentences(
    blocks, ids, rng, removal_rate
  )
  most = max(1, math.ceil(mask_rate * layout.query_tokens))  # M
  wide = dataclasses.replace(layout, max_targets=most)
  masked = []
  for tokens in sentences:
    tokens = tokens[: layout.query_tokens]
    weights = token_weights[tokens]
    chosen = sources.mask_uniformly(
      len(tokens), rng, mask_rate, weights / weights.sum()
    )
    masked.append(examples.mask_sentence(wide, tokens, chosen))
  batch = examples.stack(masked)
  query = batch.pop('sentence'), batch.pop('sentence_count')
  rest = examples.pad(rests, layout.block_length - 2)
  rows = examples.join(layout, layout.joint_length, query, rest)
  joint = examples.name_rows('joint', rows, (len(ids), 1))
  return joint | batch | {'sentence_removed': removed}


def loss(
  model: model_lib.Realm,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Cross-entropy of the masked tokens of `read_rows`, by the encoder.

  Returns the mean over target tokens in nats, and metrics over target tokens:
  accuracy; accuracy_removed and accuracy_kept, in blocks without and with their
  sentence.
  """
  logits = batches.apply(
    model, params, batch, train=train, key=key, method='token_logits'
  )[:, 0]
  log_probs = jax.nn.log_softmax(logits)
  targets, mask = batch['mlm_targets'], batch['mlm_mask']
  gold = jnp.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
  right = gold >= log_probs.max(axis=-1)
  removed = batch['sentence_removed'][:, None]

  return means.of(-gold, mask), {
    'accuracy': means.of(right, mask),
    'accuracy_removed': means.of(right, mask & removed),
    'accuracy_kept': means.of(right, mask & ~removed),
  }
