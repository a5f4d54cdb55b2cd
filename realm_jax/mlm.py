# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT's masked language modelling, for encoders without a trained head.

Devlin et al. 2018, section 3.1: of 15 % of a row's tokens, 80 % become [MASK], 10 %
another token, 10 % stay, and all are predicted. REALM's encoder starts from a BERT
that has been trained so; checkpoints such as all-MiniLM-L6-v2 come without the
head.

Dimension key: B rows, L tokens, M targets.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from flax import linen as nn
import grain
import jax
from jax import numpy as jnp
from jaxtyping import Array
from jaxtyping import Float
import numpy as np

from realm_jax import block_dataset
from realm_jax import examples
from realm_jax import masking
from retrieval import blocks as blocks_lib

_REPLACED = (0.8, 0.9)  # below: [MASK]; below: another token; else the same


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masker:
  """Turns blocks into rows.

  Attributes:
    layout: specials; block_length is L.
    vocab_size: of random replacements.
  """

  layout: examples.Layout
  vocab_size: int

  @property
  def num_targets(self) -> int:
    """M, the most that a row predicts."""
    return math.ceil(masking.MASK_RATE * self.layout.block_length)

  def row(
    self, tokens: np.ndarray, rng: np.random.Generator
  ) -> tuple[np.ndarray, np.ndarray]:
    """Masks the tokens of one block.

    Args:
      tokens: [n] int32, at least 1; changed in place.
      rng: randomness.

    Returns:
      Sorted positions of the targets in `tokens`, and what stood there.
    """
    chosen = masking.uniform(len(tokens), rng)[: self.num_targets]
    targets = tokens[chosen].copy()
    draw = rng.random(len(chosen))
    other = rng.integers(self.vocab_size, size=len(chosen))
    new = np.where(draw < _REPLACED[1], other, targets)
    tokens[chosen] = np.where(draw < _REPLACED[0], self.layout.mask_id, new)
    return chosen, targets


def read_rows(
  masker: Masker,
  blocks: blocks_lib.BlockStore,
  ids: np.ndarray,
  rng: np.random.Generator,
) -> examples.Batch:
  """Masked rows of blocks.

  Args:
    masker: how.
    blocks: where they lie.
    ids: [B] blocks.
    rng: randomness.

  Returns:
    ids [B, L] int32, mask [B, L] bool, positions, targets [B, M] int32, target_mask
    [B, M] bool.
  """
  layout = masker.layout
  tokens, counts = blocks.gather(ids, layout.block_length - 2)
  found = np.zeros((2, len(ids), masker.num_targets), np.int32)
  used = np.zeros(found.shape[1:], bool)
  for i, count in enumerate(counts.tolist()):
    positions, targets = masker.row(tokens[i, :count], rng)
    found[:, i, : len(targets)] = positions + 1, targets
    used[i, : len(targets)] = True
  rows, mask, _ = examples.join(layout, layout.block_length, (tokens, counts))
  return {
    'ids': rows,
    'mask': mask,
    'positions': found[0],
    'targets': found[1],
    'target_mask': used,
  }


def make_dataset(
  masker: Masker, blocks: blocks_lib.BlockStore, **settings
) -> grain.IterDataset:
  """Batches of `read_rows`; settings as of `block_dataset.make_dataset`."""

  def read(ids, rng):
    return read_rows(masker, blocks, ids, rng)

  return block_dataset.make_dataset(read, blocks, **settings)


def loss(
  encoder: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """Mean nats of a target.

  Args:
    encoder: `model.Encoder`.
    params: {'encoder': its parameters}.
    batch: of `read_rows`.
    key: of dropout.
    train: whether dropout acts.

  Returns:
    The mean over targets, and metrics: accuracy, and weight, their number.
  """
  logits = encoder.apply(
    {'params': params['encoder']},
    *(batch[name] for name in ('ids', 'mask')),
    None,
    batch['positions'],
    train=train,
    rngs={'dropout': key} if train else None,
  )
  targets, used = batch['targets'], batch['target_mask']
  log_probs = jax.nn.log_softmax(logits)
  gold = jnp.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
  number = jnp.maximum(used.sum(dtype=jnp.float32), 1.0)
  right = (logits.argmax(axis=-1) == targets) & used
  return -jnp.where(used, gold, 0.0).sum() / number, {
    'accuracy': right.sum(dtype=jnp.float32) / number,
    'weight': used.sum(dtype=jnp.float32),
  }
